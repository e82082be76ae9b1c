"""Ctrl-C, put off to the end of the step, so that what is saved is whole."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self


class Stopped(KeyboardInterrupt):
    """A run was stopped and saved. The message says how to go on."""


class SignalGuard:
    """While it is open, the first SIGINT or SIGTERM sets ``asked``; a second SIGINT stops at once.

    Only the main thread may listen to signals; in another one it just never asks.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.asked = True

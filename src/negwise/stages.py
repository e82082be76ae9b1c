"""Long work says what it does, and somebody may listen::

    with signs_of_life(print):
        with stage("splitting log.csv") as progress:
            progress(0.4)  # now and then, where the share is known

prints every two seconds ``splitting log.csv: 40%, 12 s left``, or ``splitting log.csv: 8 s so far`` where no share is
known. A thread prints, so that a line comes while one long call is on. On a terminal each line takes the place of the
one before, and the last goes when its stage ends. Without a listener nothing is printed.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

EVERY = 2.0
"""Seconds until the first line, and between two."""

_CLEAR = "\r\x1b[2K"

Progress = Callable[[float], None]
"""Called with the share of the work that is done, now and then."""


class Stage:
    """One piece of work: what it is, when it began, and how much of it is done."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.what, self.clock = what, clock
        self.began = clock()
        self._done = 0.0, self.began  # in one piece: another thread reads it

    def progress(self, share: float) -> None:
        self._done = share, self.clock()

    def line(self) -> str:
        """What a person reads now."""
        share, when = self._done
        spent = self.clock() - self.began
        if 0 < share < 1:
            left = max((when - self.began) / share - spent, 0.0)
            return f"{self.what}: {share:.0%}, {in_words(left)} left"
        return f"{self.what} ..." if spent < 1 else f"{self.what}: {in_words(spent)} so far"


class _Listener:
    """The stages that are on, the innermost last. It speaks of that one. ``since``: when the outermost began."""

    def __init__(self, say: Callable[[str], None] | None, every: float, outer: _Listener | None = None) -> None:
        self.stages: list[Stage] = []
        self.since: float = time.monotonic() if outer is None else outer.since
        self.told: set[str] = set() if outer is None else outer.told
        self._listener, self._every = say, every
        self._stream = sys.stderr
        self._in_place = False  # whether a line stands on the terminal that the next one replaces
        self._turn = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak, name="negwise signs of life", daemon=True)
        self._thread.start()

    def _speak(self) -> None:
        last = time.monotonic()
        while not self._over.wait(self._every / 8):  # often: a short moment between two stages must not cost a line
            with self._turn:
                on = self.stages[-1:]
                if on and time.monotonic() - last >= self._every:
                    self._say(on[0].line())
                    last = time.monotonic()

    def leave(self, one: Stage) -> None:
        """``one`` is over: its line goes, where it stands in place."""
        with self._turn:
            self.stages.remove(one)
            self._clear()

    def tell(self, line: str) -> None:
        """A line that stays, once."""
        if line in self.told:
            return
        self.told.add(line)
        with self._turn:
            self._clear()
            self._say(line, stays=True)

    def _clear(self) -> None:
        if self._in_place:
            print(_CLEAR, end="", file=sys.stderr, flush=True)
            self._in_place = False

    def _say(self, line: str, stays: bool = False) -> None:
        if self._listener is not None:
            self._listener(line)
            return
        if os.environ.get("RANK", "0") != "0":
            return
        # A bar puts a stream of its own, which takes whole lines, in the place of standard error.
        own = sys.stderr is not None and sys.stderr is self._stream
        self._in_place = not stays and own and sys.stderr.isatty()
        if self._in_place:
            print(f"{_CLEAR}{line[: shutil.get_terminal_size().columns - 1]}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def end(self) -> None:
        self._over.set()
        self._thread.join()


_LISTENER: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def signs_of_life(say: Callable[[str], None] | None = None, every: float | None = None) -> Iterator[None]:
    """Tell of the stages inside by ``say`` (standard error, of the first of several processes), from a thread.

    The innermost listener is the one that is told.
    """
    listener = _Listener(say, EVERY if every is None else every, _LISTENER.get())
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
        listener.end()


def listening_since() -> float | None:
    """The `time.monotonic` at which the outermost listener began, as a verb does first of all; None without one."""
    listener = _LISTENER.get()
    return None if listener is None else listener.since


@contextmanager
def stage(what: str, also: Progress | None = None) -> Iterator[Progress]:
    """Work that may take a while. Yields a `Progress`, which calls ``also`` too."""
    listener, on = _LISTENER.get(), Stage(what)

    def progress(share: float) -> None:
        on.progress(share)
        if also is not None:
            also(share)

    if listener is None:
        yield progress
        return
    listener.stages.append(on)
    try:
        yield progress
    finally:
        listener.leave(on)


def tell(line: str) -> None:
    """Say ``line`` to whoever listens, once."""
    listener = _LISTENER.get()
    if listener is not None:
        listener.tell(line)


def in_words(seconds: float) -> str:
    """``1 min 5 s``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

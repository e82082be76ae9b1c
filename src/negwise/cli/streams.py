"""Standard streams that never end a run: a closed one leads nowhere, and a reader that goes away is not missed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO


@contextmanager
def safe_streams() -> Iterator[None]:
    """Within this, standard error may be closed at any time, and text that is not UTF-8 prints as ``\\udcff``.

    A command whose standard output is closed by its reader, as by ``| head``, still raises `BrokenPipeError`: nobody
    wants the rest of its output.
    """
    _reopen_closed()
    before = sys.stdout, sys.stderr
    sys.stdout = _escaping(sys.stdout, 1)
    sys.stderr = _Optional(_escaping(sys.stderr, 2))
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        raise
    finally:
        sys.stdout, sys.stderr = before


def _reopen_closed() -> None:
    """Descriptors 0, 1 and 2 that are closed would be taken by the next file that is opened."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)


def _escaping(stream: TextIO | None, number: int) -> TextIO:
    if stream is None:  # it was closed when Python started
        stream = os.fdopen(number, "w", closefd=False)
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream


def _discard_output() -> None:
    """Python flushes standard output once more when it ends, and would complain once more."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Optional:
    """A stream whose reader may go away."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with suppress(BrokenPipeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(BrokenPipeError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

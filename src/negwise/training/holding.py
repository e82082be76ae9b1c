"""One process at a time in a folder: two would write over each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from negwise.errors import InputError, NegwiseError

LOCK = ".lock"


@contextmanager
def lock_folder(folder: Path, what: str) -> Iterator[None]:
    """The folder of a ``what`` ("run", "job") for as long as this process lives; nothing is left where nothing came."""
    new = not folder.exists()
    check_writable(folder, what)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise NegwiseError(f"{folder}: another process works on this {what}. Wait for it, or stop it.") from error
    try:
        yield
    finally:
        if new and [entry.name for entry in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
        lock.release()


def check_writable(folder: Path, what: str) -> None:
    """Make the folder, or say why it cannot be one."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; expected a folder for the {what}, or a name that is free.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / LOCK).touch()
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}). Choose another folder with --out."
        ) from error

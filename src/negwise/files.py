"""Files that are whole or absent, JSON, and folders that one process holds at a time."""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from negwise.errors import InputError, NegwiseError, require

REPAIR = "Restore the file, or remove it and run the same command again."
LOCK = ".lock"
PATIENCE = 3.0
"""Seconds to wait for a lock: its holder may have been killed a moment ago."""


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write ``content`` to ``path``, making its folder; a reader never sees half of it.

    A link is followed: what it points at is replaced, and the link stays. What is there and is no regular file, or may
    not be written, is refused. Text that UTF-8 cannot hold, as the name of a file may be, is written as ``\\udcff``.
    """
    target = Path(path)
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        _write(_replaceable(target), data)
    except OSError as error:  # of the temporary file: nobody asked for that
        raise type(error)(error.errno, error.strerror, str(target)) from error
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside ``path`` to write a long file to; it becomes ``path`` at the end, and is removed after an error."""
    target = _replaceable(Path(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: str | os.PathLike[str], what: str) -> Iterator[Path]:
    """A folder beside ``path`` to fill; it becomes ``path`` at the end, which has to be new or empty till then."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"{what}: got {path!r}, expected the path of a new folder.")
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target}: it is there and not empty, expected a new folder for the {what}.")
    check_writable(target.parent, what)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield temporary
        temporary.chmod(0o777 & ~_umask())  # mkdtemp's own 0700 would hide the folder from its owner's group
        if target.exists():
            target.rmdir()
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_json(path: str | os.PathLike[str], value: Any) -> Path:
    """Write ``value`` as JSON; a reader never sees half of it."""
    return write_atomically(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of the JSON file ``path``. NaN and Infinity, which JSON does not have, are refused."""
    try:
        return json.loads(Path(path).read_bytes(), parse_constant=_refuse_constant)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}). {REPAIR}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON ({error}). {REPAIR}") from error


@contextmanager
def lock_folder(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder of a ``what`` ("run", "job") for this process: two would write over each other.

    The lock of a process that died is free again. An empty folder that was made for the lock is removed with it.
    """
    filelock = require("filelock", extra="train")
    new = not folder.exists()
    check_writable(folder, what)
    lock = filelock.FileLock(folder / LOCK, timeout=PATIENCE)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise NegwiseError(f"{folder}: another process works on this {what}. Wait for it, or stop it.") from error
    try:
        yield
    finally:
        if new and [entry.name for entry in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
        lock.release()


def check_writable(folder: Path, what: str) -> None:
    """Make the folder of a ``what``, or say why that is impossible."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; expected a folder for the {what}, or a name that is free.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be written to ({error.strerror}). Choose another folder with --out."
        ) from error


def _replaceable(target: Path) -> Path:
    """Where the new file goes."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(target))  # a link to a missing file leads to where that file will be
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise InputError(f"{target}: {kind}, expected a file that can be replaced, or a new name.")
    if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):  # even for root, who may
        raise InputError(f"{target}: read-only. Type: chmod u+w {target}, or choose another name.")
    return Path(os.path.realpath(target))


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    # The mask can only be read by setting it; mkstemp's own 0600 would hide the file from its owner's group.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number in JSON")

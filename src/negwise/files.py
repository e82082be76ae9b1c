"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from negwise.errors import InputError


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


def _replaceable(target: Path) -> Path:
    """Where the new file goes."""
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        return Path(os.path.realpath(target))  # a link to a file that is not there yet leads to where that will be
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

"""Files that are whole or absent: written under a temporary name, then renamed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write ``content`` to ``path``, making its folder; a reader never sees half of it."""
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        return _write(target, data)
    except OSError as error:  # of the temporary file: nobody asked for that
        raise type(error)(error.errno, error.strerror, str(target)) from error


def _write(target: Path, data: bytes) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return target


def _umask() -> int:
    # The mask can only be read by setting it; mkstemp's own 0600 would hide the file from its owner's group.
    mask = os.umask(0)
    os.umask(mask)
    return mask

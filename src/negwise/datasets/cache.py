"""What was read once: folders of memory-mapped tables, keyed by the content of the files they came from.

A folder appears whole or not at all: it is written under a temporary name and renamed, so that a reader that is
killed leaves nothing that looks like a cache, and of two that read at once one wins.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from negwise.errors import InputError
from negwise.files import write_atomically

VERSION = 2
"""Raised whenever a reader writes something else for the same files."""

SETTLED_NS = 2 * 10**9
"""A file changed this shortly before it was hashed may change again within one tick of its clock."""


def cache_folder() -> Path:
    """``NEGWISE_CACHE``, or negwise's folder among the caches of the user."""
    named = os.environ.get("NEGWISE_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "negwise"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "negwise" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "negwise"


def content_key(kind: str, files: Sequence[Path], extra: Any, cache: Path) -> str:
    """A hash of the reader's version, what it was asked, and the bytes of every file, wherever they lie."""
    parts = [VERSION, kind, extra, [file_hash(file, cache) for file in files]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def file_hash(file: Path, cache: Path) -> str:
    """SHA-256 of the content, remembered for as long as size, inode, mtime and ctime stay."""
    found = file.stat()
    stamp = [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
    memory = cache / "hashes" / f"{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:32]}.json"
    try:
        remembered = json.loads(memory.read_text())
        if remembered["stamp"] == stamp:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing remembered, or not readable: the content says it
    now = time.time_ns()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if now - max(found.st_mtime_ns, found.st_ctime_ns) > SETTLED_NS:
        _writing(cache, lambda: write_atomically(memory, json.dumps({"stamp": stamp, "sha256": digest})))
    return digest


def cached(key: str, cache: Path, build: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """The folder of ``key`` and its facts; where it is missing, ``build(folder)`` fills it and returns the facts."""
    folder = cache / key
    facts = _facts(folder)
    if facts is not None:
        return folder, facts
    _writing(cache, lambda: cache.mkdir(parents=True, exist_ok=True))
    made = Path(_writing(cache, lambda: tempfile.mkdtemp(dir=cache, prefix=f".{key}.")))
    try:
        facts = build(made)
        (made / "facts.json").write_text(json.dumps(facts))
        for file in made.iterdir():
            _sync(file)
        _rename(made, folder)
    except OSError as error:
        raise _unwritable(cache, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder, facts


def _facts(folder: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((folder / "facts.json").read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: a damaged cache ({error}). Delete that folder; it will be made again.") from error


def _rename(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if _facts(folder) is None:  # not another reader that was faster
            raise


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _writing(cache: Path, write: Callable[[], Any]) -> Any:
    try:
        return write()
    except OSError as error:
        raise _unwritable(cache, error) from error


def _unwritable(cache: Path, error: OSError) -> InputError:
    reason = error.strerror or error
    return InputError(f"{cache}: the cache cannot be written ({reason}). Set NEGWISE_CACHE to a folder with room.")

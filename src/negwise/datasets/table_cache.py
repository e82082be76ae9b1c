"""A cache of parsed data: folders of memory-mapped tables, keyed by the content of their source files.

A folder is written under a temporary name and then renamed, so it is either complete or absent. A killed reader leaves
no incomplete cache, and of two readers at once one wins. Tables are written block by block, so that memory does not
grow with the rows.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ragged
from negwise.errors import InputError, require
from negwise.files import write_atomically

VERSION = 2
"""Increased whenever a reader changes what it writes for the same files."""
LAYOUT = 5
"""Raised when a folder of the cache gets other content for the same digest."""

MIN_AGE_NS = 2 * 10**9
"""The hash of a younger file is not stored: the file may change again within one tick of its timestamps."""


def cache_folder() -> Path:
    """``NEGWISE_CACHE`` if set, else negwise's folder in the user's cache directory."""
    chosen = os.environ.get("NEGWISE_CACHE")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "negwise"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "negwise" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "negwise"


def content_key(kind: str, files: Sequence[Path], extra: Any, cache: Path) -> str:
    """A hash of the reader's version, its options and the bytes of every file, independent of paths."""
    parts = [VERSION, kind, extra, [file_hash(file, cache) for file in files]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def file_hash(file: Path, cache: Path) -> str:
    """SHA-256 of the content, stored for as long as size, inode, mtime and ctime stay the same."""
    found = file.stat()
    stamp = [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]
    memory = cache / "hashes" / f"{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:32]}.json"
    try:
        remembered = json.loads(memory.read_text())
        if remembered["stamp"] == stamp:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # nothing stored, or not readable: hash the content
    now = time.time_ns()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if now - max(found.st_mtime_ns, found.st_ctime_ns) > MIN_AGE_NS:
        _try_write(cache, lambda: write_atomically(memory, json.dumps({"stamp": stamp, "sha256": digest})))
    return digest


def cached_facts(folder: Path) -> dict[str, Any] | None:
    """The facts of a folder of the cache; None where it is missing."""
    try:
        return dict(json.loads((folder / "facts.json").read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{folder}: the cache is damaged ({error}). Delete that folder; it will be rebuilt."
        ) from error


def get_or_build(key: str, cache: Path, build: Callable[[Path], dict[str, Any]]) -> tuple[Path, dict[str, Any]]:
    """The folder of ``key`` and its facts. If it is missing, ``build(folder)`` fills it and returns the facts."""
    folder = cache / key
    facts = cached_facts(folder)
    if facts is not None:
        return folder, facts
    _try_write(cache, lambda: cache.mkdir(parents=True, exist_ok=True))
    made = Path(_try_write(cache, lambda: tempfile.mkdtemp(dir=cache, prefix=f".{key}.")))
    try:
        facts = build(made)
        (made / "facts.json").write_text(json.dumps(facts))
        for file in made.iterdir():
            _sync(file)
        _rename(made, folder)
    except OSError as error:
        raise _write_error(cache, error) from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder, facts


def open_tables(folder: Path) -> dict[str, Any]:
    """All tables of ``folder`` by name, memory-mapped."""
    arrow = require("pyarrow", extra="train")
    try:
        return {
            file.stem: arrow.ipc.open_file(arrow.memory_map(str(file))).read_all()
            for file in sorted(folder.glob("*.arrow"))
        }
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{folder}: the cache is damaged ({error}). Delete that folder; it will be rebuilt."
        ) from error


def read_batches(folder: Path, name: str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The blocks of a table, one after the other, as tables in memory: a map of a whole file would count as memory.

    ``columns`` are those that are read, if not all.
    """
    arrow = require("pyarrow", extra="train")
    try:
        with arrow.OSFile(str(folder / f"{name}.arrow")) as file:
            places = None if columns is None else _places(arrow.ipc.open_file(file).schema.names, columns)
            reader = arrow.ipc.open_file(file, options=arrow.ipc.IpcReadOptions(included_fields=places))
            for number in range(reader.num_record_batches):
                yield arrow.Table.from_batches([reader.get_batch(number)])
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{folder}: the cache is damaged ({error}). Delete that folder; it will be rebuilt."
        ) from error


def read_columns(folder: Path, name: str, columns: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns of numbers without nulls, as arrays in memory, each in the type that the table has for it."""
    found: dict[str, list[NDArray[Any]]] = {column: [] for column in columns}
    for block in read_batches(folder, name, columns):
        for column, parts in found.items():
            parts.append(block[column].to_numpy().copy())  # Arrow keeps what it lent; a copy is given back when done
    joined = {}
    for column in columns:
        joined[column] = np.concatenate(found.pop(column))
    return joined


class TableWriter:
    """Writes an Arrow IPC file block by block::

    with TableWriter(folder, "news", {"id": "string"}) as table:
        table.write({"id": ["N1", "N2"]})
    """

    def __init__(self, folder: Path, name: str, columns: Mapping[str, str]) -> None:
        arrow = require("pyarrow", extra="train")
        kinds = {"ints": arrow.list_(arrow.int32()), "string": arrow.string(), "int8": arrow.int8()}
        kinds |= {"int32": arrow.int32(), "int64": arrow.int64()}
        self._schema = arrow.schema([(column, kinds[kind]) for column, kind in columns.items()])
        self._arrow = arrow
        self._writer = arrow.ipc.new_file(str(folder / f"{name}.arrow"), self._schema)
        self.rows = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._writer.close()

    def write(self, columns: Mapping[str, Any]) -> None:
        """Columns of equal length: lists, NumPy or Arrow arrays; None for a column of nulls, `Ragged` for lists."""
        rows = next(len(column) for column in columns.values() if column is not None)
        arrays = [self._array(columns[field.name], field.type, rows) for field in self._schema]
        if rows:
            self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))
        self.rows += rows

    def _array(self, column: Any, kind: Any, rows: int) -> Any:
        if column is None:
            return self._arrow.nulls(rows, kind)
        if isinstance(column, Ragged):
            offsets = self._arrow.array(column.offsets, self._arrow.int32())
            return self._arrow.ListArray.from_arrays(offsets, self._arrow.array(column.ids, self._arrow.int32()))
        if isinstance(column, self._arrow.Array):
            return column.cast(kind)
        return self._arrow.array(column, kind)


def _places(names: Sequence[str], columns: Sequence[str]) -> list[int]:
    return [at for at, name in enumerate(names) if name in columns]


def _rename(made: Path, folder: Path) -> None:
    try:
        made.rename(folder)
    except OSError:
        if cached_facts(folder) is None:  # not because another reader was faster
            raise


def _sync(file: Path) -> None:
    with file.open("rb") as stream:
        os.fsync(stream.fileno())


def _try_write(cache: Path, write: Callable[[], Any]) -> Any:
    try:
        return write()
    except OSError as error:
        raise _write_error(cache, error) from error


def _write_error(cache: Path, error: OSError) -> InputError:
    reason = error.strerror or error
    return InputError(f"{cache}: cannot write the cache ({reason}). Set NEGWISE_CACHE to another folder.")

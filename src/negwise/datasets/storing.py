"""Tables written a chunk at a time, so that memory does not grow with the rows, and read back memory-mapped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from negwise.errors import InputError, require

CHUNK_ROWS = 4096
CHUNK_WEIGHT = 2**20
"""A chunk is written when it has this many rows, or this many characters and ids."""


class TableWriter:
    """One Arrow IPC file, row by row: ``with TableWriter(folder, "news", {"id": "string"}) as t: t.add("N1")``."""

    def __init__(self, folder: Path, name: str, columns: Mapping[str, str]) -> None:
        arrow = require("pyarrow", extra="train")
        kinds = {"ints": arrow.list_(arrow.int32()), "string": arrow.string(), "int8": arrow.int8()}
        kinds |= {"int32": arrow.int32(), "int64": arrow.int64()}
        self._schema = arrow.schema([(column, kinds[kind]) for column, kind in columns.items()])
        self._arrow = arrow
        self._writer = arrow.ipc.new_file(str(folder / f"{name}.arrow"), self._schema)
        self._columns: list[list[Any]] = [[] for _ in columns]
        self._sized = [at for at, kind in enumerate(columns.values()) if kind in ("ints", "string")]
        self._weight = 0
        self.rows = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, *values: Any) -> None:
        self.rows += 1
        for column, value in zip(self._columns, values, strict=True):
            column.append(value)
        for at in self._sized:
            self._weight += len(values[at] or ())
        if len(self._columns[0]) >= CHUNK_ROWS or self._weight >= CHUNK_WEIGHT:
            self._flush()

    def _flush(self) -> None:
        arrays = [
            self._arrow.array(column, field.type) for column, field in zip(self._columns, self._schema, strict=True)
        ]
        if self._columns[0]:
            self._writer.write_batch(self._arrow.record_batch(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()
        self._weight = 0


def open_tables(folder: Path) -> dict[str, Any]:
    """Every table in ``folder``, by name, memory-mapped."""
    arrow = require("pyarrow", extra="train")
    try:
        return {
            file.stem: arrow.ipc.open_file(arrow.memory_map(str(file))).read_all()
            for file in sorted(folder.glob("*.arrow"))
        }
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{folder}: a damaged cache ({error}). Delete that folder; it will be made again.") from error


class Numbering:
    """Numbers for names, in order of first appearance."""

    def __init__(self) -> None:
        self.number: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self.number.setdefault(name, len(self.number))

    def __len__(self) -> int:
        return len(self.number)

    def write(self, folder: Path, table: str) -> None:
        with TableWriter(folder, table, {"id": "string"}) as writer:
            for name in self.number:
                writer.add(name)

"""Writes rows whose ids become numbers, in the order of first appearance, however many ids there are.

Arrow numbers ids many times faster than a dictionary of Python does, but begins anew with each call. So blocks wait
until they have as many rows as there are ids: then the work is in proportion to the rows, and memory to the ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.table_cache import TableWriter
from negwise.errors import require

WAITING_ROWS = 2**18
"""At least this many rows are numbered at a time."""


class NumberedRows:
    """A table in which some columns are ids::

        with NumberedRows(folder, "interactions", COLUMNS, ("user", "item")) as table:
            table.write({"user": names, "item": others, "time": times})
        table.write_names("user", "users")

    Columns of ids are dictionary arrays (N,) of texts or whole numbers, in the order of first appearance.
    """

    def __init__(self, folder: Path, name: str, columns: Mapping[str, str], ids: tuple[str, ...]) -> None:
        arrow = require("pyarrow", extra="train")
        self._folder = folder
        self._table = TableWriter(folder, name, columns)
        self._names = {role: arrow.array([], arrow.string()) for role in ids}
        self._waiting: list[Mapping[str, Any]] = []
        self._rows = 0

    def __enter__(self) -> NumberedRows:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self._table.__exit__(kind, error, at)

    @property
    def rows(self) -> int:
        """Rows that are written or wait."""
        return self._table.rows + self._rows

    def write(self, columns: Mapping[str, Any]) -> None:
        """Columns of equal length, as `TableWriter.write` takes them; None for a column of nulls."""
        self._waiting.append(columns)
        self._rows += next(len(column) for column in columns.values() if column is not None)
        if self._rows >= max(WAITING_ROWS, *map(len, self._names.values())):
            self._flush()

    def write_names(self, role: str, table: str) -> None:
        """The ids of a column, in the order of their numbers, as a table of their own."""
        with TableWriter(self._folder, table, {"id": "string"}) as writer:
            writer.write({"id": self._names[role]})

    def _flush(self) -> None:
        numbers = {
            role: self._number(role) for role in self._names if self._waiting and self._waiting[0][role] is not None
        }
        for at, columns in enumerate(self._waiting):
            self._table.write({**columns, **{role: listed[at] for role, listed in numbers.items()}})
        self._waiting.clear()
        self._rows = 0

    def _number(self, role: str) -> list[NDArray[np.int32]]:
        """The numbers of ``role`` in each block that waits."""
        arrow = require("pyarrow", extra="train")
        blocks = [columns[role] for columns in self._waiting]
        parts = _of_one_type(arrow, [self._names[role], *(block.dictionary for block in blocks)])
        # The names that are known come first and are distinct, so they keep their numbers.
        known = arrow.concat_arrays(parts).dictionary_encode()
        self._names[role] = known.dictionary
        numbers = np.split(known.indices.to_numpy(zero_copy_only=False), np.cumsum([len(part) for part in parts])[:-1])
        codes = [block.indices.to_numpy(zero_copy_only=False) for block in blocks]
        return [of[code] for of, code in zip(numbers[1:], codes, strict=True)]


def _of_one_type(arrow: Any, parts: list[Any]) -> list[Any]:
    """``parts`` in the type that all of them have, or as texts: a number and its text are one id."""
    found = {part.type for part in parts if len(part)}
    kind = found.pop() if len(found) == 1 else arrow.string()
    return [part.cast(kind) for part in parts]

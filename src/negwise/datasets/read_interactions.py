"""Reads MovieLens, the SASRec text form and other interactions: rows of (user, item, time, label, impression).

Tables: ``users`` and ``items`` with the ids of the file, ``interactions`` with row numbers of those. If the file lacks
a column, ``time`` is null (rows are in the order of time), ``label`` is 1 and ``impression`` is null.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.bad_rows import BadRows
from negwise.datasets.data_names import shown
from negwise.datasets.delimited import IDS
from negwise.datasets.id_columns import id_texts, keep
from negwise.datasets.numbered_rows import NumberedRows
from negwise.datasets.positives import VALUE, Condition, Matches, holds
from negwise.datasets.row_blocks import RowBlock, Wrong, cell
from negwise.datasets.timestamps import looks_like_a_day, times_of
from negwise.errors import InputError, quote, require

COLUMNS = {"user": "int32", "item": "int32", "time": "int64", "label": "int8", "impression": "int32"}
_LABELS = {"1": 1, "0": 0, "1.0": 1, "0.0": 0, "true": 1, "false": 0}


def read_interactions(
    blocks: Iterable[RowBlock], folder: Path, bad_rows: BadRows, name: str, positive: Condition | None = None
) -> int:
    """Write the tables of the data ``name``. Returns the number of good rows.

    ``positive`` makes the labels, from the role `VALUE`.
    """
    days, matches = _Days(), None if positive is None else Matches(positive)
    with NumberedRows(folder, "interactions", COLUMNS, IDS) as table:
        for block in blocks:
            cells, wrong = block.columns, Wrong()
            names = {role: id_texts(cells[role], role, wrong) for role in IDS if role in cells}
            time = times_of(cells["time"], wrong) if "time" in cells else None
            if positive is not None:
                label = holds(positive, cells[VALUE], wrong)
            else:
                label = _labels(cells["label"], wrong) if "label" in cells else np.ones(len(block), np.int8)
            good = block.report(wrong, bad_rows)
            names = {role: keep(ids, good) for role, ids in names.items()}
            if good is not None:
                label, time = label[good], None if time is None else time[good]
            if matches is not None:
                matches.add(cells[VALUE], label)
            table.write(
                {
                    "user": names["user"],
                    "item": names["item"],
                    "time": time,
                    "label": label,
                    "impression": names.get("impression"),
                }
            )
            if time is not None:
                days.check(block.file, time)
    days.refuse()
    if matches is not None:
        matches.check(name)
    table.write_names("user", "users")
    table.write_names("item", "items")
    return table.rows


def _labels(column: Any, wrong: Wrong) -> NDArray[np.int8]:
    """(N,) 1 or 0 of each cell."""
    if isinstance(column, list):
        values, codes = column, np.arange(len(column))
    else:
        arrow = require("pyarrow", extra="train")
        encoded = column if isinstance(column, arrow.DictionaryArray) else column.dictionary_encode()
        values = [*encoded.dictionary.to_pylist(), None]
        codes = encoded.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False)
    known = np.array([_LABELS.get(str(value).strip().lower(), -1) for value in values], np.int8)
    found = known[codes] if len(values) else np.zeros(0, np.int8)
    for row in np.flatnonzero(found < 0).tolist():
        what = f"label {quote(cell(column, row))}, expected 1 (clicked) or 0 (shown, not clicked)"
        wrong.setdefault(row, what)
    return found


class _Days:
    """Sees whether every time reads as a day, as 20191112 does, which as seconds would be in 1970."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._file: Path | None = None
        self._open = True

    def check(self, file: Path, times: NDArray[np.int64]) -> None:
        if self._open and len(times):
            self._open = all(map(looks_like_a_day, np.unique(times).tolist())) if _in_range(times) else False
            self._last, self._file = int(times[-1]) // 1000, file

    def refuse(self) -> None:
        if self._open and self._last is not None and self._file is not None:
            raise InputError(
                f"{shown(self._file)}: every time looks like a day (the last: {self._last}); as seconds since 1970 "
                f"all would be in 1970. Write days as {date.fromisoformat(str(self._last)).isoformat()}."
            )


def _in_range(times: NDArray[np.int64]) -> bool:
    """A quick look before each time is looked at: all have eight digits as seconds."""
    return bool(times.min() >= 19_700_101_000 and times.max() < 21_000_101_000)

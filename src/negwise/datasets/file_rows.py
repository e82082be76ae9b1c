"""From the files of a data set to columns by role, block after block: one way for every form."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.arrow_files import table_rows
from negwise.datasets.data_names import shown
from negwise.datasets.delimited import Cut, csv_rows, cut_lines
from negwise.datasets.formats import DetectedFormat
from negwise.datasets.json_lines import json_rows
from negwise.datasets.positives import VALUE, Condition
from negwise.datasets.row_blocks import RowBlock
from negwise.datasets.table_columns import choose_columns, matching_names
from negwise.errors import InputError, require
from negwise.stages import Progress

DAT = Cut("::", 4, "expected user::item::rating::time with whole numbers", whole_numbers=True)
SPACES = Cut(None, 2, "expected user item with whole numbers", whole_numbers=True)


def choose_roles(
    detected: DetectedFormat, columns: Mapping[str, str], positive: Condition | None = None
) -> dict[str, str]:
    """Role -> column of what is read of a table."""
    file, names = detected.files[0], detected.names
    if detected.form in ("dat", "spaces"):
        if columns:
            raise InputError(f"{shown(file)}: has no header, so columns={dict(columns)!r} names nothing. Leave it out.")
        chosen = {name: name for name in names if name != "rating"}
    elif detected.kind == "movielens":
        chosen = choose_columns(file, "interactions", names, {"time": names[3]} | dict(columns))
    else:
        chosen = choose_columns(file, detected.kind, names, columns)
    if positive is not None:
        if detected.kind == "pairs":
            raise InputError(f"{shown(file)}: positive={positive}, but text pairs have no ratings. Leave it out.")
        chosen.pop("label", None)
        chosen[VALUE] = _column_of(positive, file, names)
    if "impression" in chosen and "label" not in chosen and positive is None:
        raise InputError(
            f"{shown(file)}: impressions need a label column (1 clicked, 0 shown and not clicked). Add one."
        )
    return chosen


def read_blocks(
    detected: DetectedFormat, chosen: Mapping[str, str], progress: Progress | None = None
) -> Iterator[RowBlock]:
    """The rows of all files; ``chosen`` says which column has which role."""
    sizes = [file.stat().st_size for file in detected.files]
    for at, file in enumerate(detected.files):
        outside = _from_folders(detected, at, chosen)
        own = {role: name for role, name in chosen.items() if role not in outside}
        for block in _rows_of_file(detected, file, detected.headers[at], own, outside):
            done = (sum(sizes[:at]) + block.share * sizes[at]) / max(sum(sizes), 1)
            if progress is not None:
                progress(done)
            repeated = {role: _repeated(value, len(block)) for role, value in outside.items()}
            yield replace(block, columns={**block.columns, **repeated}, share=done)


def _from_folders(detected: DetectedFormat, at: int, chosen: Mapping[str, str]) -> dict[str, str | None]:
    """Role -> its value in every row of file number ``at``, from the names of its folders."""
    if not detected.partitions:
        return {}
    values, header = detected.partitions[at], detected.headers[at]
    found = {role: values[name] for role, name in chosen.items() if name in values and name not in header}
    if len(found) == len(chosen):
        raise InputError(f"{detected.files[at]}: {', '.join(found)} are in the names of folders, and nothing in the "
                         "file. Expected a user or an item in each row.")  # fmt: skip
    return found


def _repeated(value: str | None, rows: int) -> Any:
    arrow = require("pyarrow", extra="train")
    if value is None:
        return arrow.nulls(rows, arrow.string())
    return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, np.int32)), arrow.array([value]))


def _rows_of_file(
    detected: DetectedFormat,
    file: Path,
    names: tuple[str, ...],
    chosen: Mapping[str, str],
    elsewhere: Collection[str],
) -> Iterator[RowBlock]:
    if detected.form == "jsonl":
        return json_rows(file, detected.kind, chosen, elsewhere)
    if detected.form not in ("csv", "dat", "spaces"):
        return table_rows(file, detected.form, chosen)
    places = {role: names.index(name) for role, name in chosen.items()}
    if detected.form != "csv":
        return cut_lines(file, DAT if detected.form == "dat" else SPACES, places)
    named = "expected userId, movieId, rating, timestamp"
    expected = named if detected.kind == "movielens" else f"but the header names {len(names)}"
    return csv_rows(file, Cut(detected.delimiter, len(names), expected, quotes=True), places)


def _column_of(positive: Condition, file: Path, names: tuple[str, ...]) -> str:
    wanted = "".join(letter for letter in positive.column.lower() if letter.isalnum())
    found = [positive.column] if positive.column in names else matching_names(names, {wanted})
    if len(found) != 1:
        raise InputError(f"{shown(file)}: positive={positive}, but there is no column {positive.column!r}. "
                         f"Columns: {', '.join(names)}.")  # fmt: skip
    return found[0]

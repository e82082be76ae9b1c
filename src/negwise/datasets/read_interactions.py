"""Reads MovieLens, the SASRec text form and other interactions: rows of (user, item, time, label, impression).

Tables: ``users`` and ``items`` with the ids of the file, ``interactions`` with row numbers of those. If the file lacks
a column, ``time`` is null (rows are in the order of time), ``label`` is 1 and ``impression`` is null.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from negwise.datasets.formats import DetectedFormat, choose_columns
from negwise.datasets.read_rows import read_rows
from negwise.datasets.table_cache import IdMap, TableWriter
from negwise.datasets.text_input import BadRows, read_delimited, read_lines
from negwise.datasets.timestamps import looks_like_a_day, parse_timestamp
from negwise.errors import InputError, quote

COLUMNS = {"user": "int32", "item": "int32", "time": "int64", "label": "int8", "impression": "int32"}


class Interaction(NamedTuple):
    where: str
    user: object
    item: object
    time: object = None
    label: object = None
    impression: object = None


def read_interactions(detected: DetectedFormat, folder: Path, bad_rows: BadRows, columns: Mapping[str, str]) -> int:
    """Write the tables. Returns the number of good rows."""
    file = detected.files[0]
    users, items, impressions = IdMap(), IdMap(), IdMap()
    roles, rows = _rows(detected, bad_rows, columns)
    day: int | None = None  # the last time, as long as all times look like days
    with TableWriter(folder, "interactions", COLUMNS) as table:
        for row in rows:
            user, item, impression = _name(row.user), _name(row.item), _name(row.impression)
            time = parse_timestamp(row.time) if "time" in roles else None
            label = _label(row.label) if "label" in roles else 1
            if not user or not item or not (impression or "impression" not in roles):
                bad_rows.add_row(file, row.where, f"no {'user' if not user else 'item' if not item else 'impression'}")
            elif time is None and "time" in roles:
                bad_rows.add_row(
                    file, row.where, f"time {quote(row.time)} is neither seconds since 1970 nor an ISO date"
                )
            elif label is None:
                bad_rows.add_row(
                    file, row.where, f"label {quote(row.label)}, expected 1 (clicked) or 0 (shown, not clicked)"
                )
            else:
                group = impressions(impression) if "impression" in roles else None
                table.add(users(user), items(item), time, label, group)
                if time is not None and (day is not None or table.rows == 1):
                    day = time // 1000 if looks_like_a_day(time) else None
    if day is not None:
        raise InputError(
            f"{file}: every time looks like a day (the last: {day}); as seconds since 1970 all would be in 1970. "
            f"Write days as {date.fromisoformat(str(day)).isoformat()}."
        )
    users.write(folder, "users")
    items.write(folder, "items")
    return table.rows


def _rows(
    detected: DetectedFormat, bad_rows: BadRows, columns: Mapping[str, str]
) -> tuple[set[str], Iterator[Interaction]]:
    """The roles that the file has, and an iterator over its rows."""
    file = detected.files[0]
    if detected.form == "spaces":
        return {"user", "item"}, _split(file, bad_rows, None, 2)
    if detected.form == "dat":
        return {"user", "item", "time"}, _split(file, bad_rows, "::", 4)
    if detected.kind == "movielens":
        return {"user", "item", "time"}, _ratings(file, bad_rows, detected.delimiter)
    chosen = choose_columns(file, "interactions", detected.names, columns)
    rows = read_rows(detected, bad_rows, chosen)
    return set(chosen), (Interaction(where, **cells) for where, cells in rows)


def _split(file: Path, bad_rows: BadRows, separator: str | None, width: int) -> Iterator[Interaction]:
    for number, text in read_lines(file, bad_rows):
        if not text.strip():
            continue
        cells = text.split(separator)
        if len(cells) != width or not (cells[0].isdecimal() and cells[1].isdecimal()):
            form = "user item" if width == 2 else "user::item::rating::time"
            bad_rows.add_row(file, f"line {number}", f"{quote(text)}, expected {form} with whole numbers")
            continue
        yield Interaction(f"line {number}", cells[0], cells[1], cells[3] if width == 4 else None)


def _ratings(file: Path, bad_rows: BadRows, delimiter: str) -> Iterator[Interaction]:
    rows = read_delimited(file, bad_rows, delimiter)
    next(rows)
    for number, cells in rows:
        if len(cells) != 4:
            bad_rows.add_row(file, f"line {number}", f"{len(cells)} cells, expected userId, movieId, rating, timestamp")
            continue
        yield Interaction(f"line {number}", cells[0], cells[1], cells[3])


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, float):  # a Parquet column of whole numbers with nulls arrives as floats
        return str(int(value)) if value.is_integer() else "" if value != value else str(value)
    return "" if value is None else str(value).strip()


def _label(value: Any) -> int | None:
    text = str(value).strip().lower()
    return {"1": 1, "0": 0, "1.0": 1, "0.0": 0, "true": 1, "false": 0}.get(text)

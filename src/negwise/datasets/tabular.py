"""Rows of tables that people bring: CSV, TSV, Parquet and JSON lines, a row at a time, as role -> cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from negwise.datasets.columns import ROLES, named
from negwise.datasets.opening import delimited, lines
from negwise.datasets.problems import Tolerance, shown
from negwise.datasets.recognise import Found
from negwise.errors import InputError, require

BATCH_ROWS = 512
READ_AHEAD = 2**16
"""Bytes of a column read ahead; without it Parquet holds a whole row group, which may be the whole file."""

Row = tuple[str, dict[str, Any]]
"""Where the row stands, and its cells by role."""


def cell_rows(found: Found, tolerance: Tolerance, chosen: Mapping[str, str]) -> Iterator[Row]:
    read = {"csv": _csv, "parquet": _parquet, "jsonl": _jsonl}[found.form]
    return read(found, tolerance, chosen)


def _csv(found: Found, tolerance: Tolerance, chosen: Mapping[str, str]) -> Iterator[Row]:
    file = found.files[0]
    place = {role: found.names.index(name) for role, name in chosen.items()}
    rows = delimited(file, tolerance, found.delimiter)
    next(rows)
    for number, cells in rows:
        if len(cells) != len(found.names):
            tolerance.bad(file, f"line {number}", f"{len(cells)} cells, but the header names {len(found.names)}")
            continue
        yield f"line {number}", {role: cells[at] for role, at in place.items()}


def _parquet(found: Found, _: Tolerance, chosen: Mapping[str, str]) -> Iterator[Row]:
    arrow, number = require("pyarrow", extra="train"), 0
    open_table = require("pyarrow.parquet", extra="train").ParquetFile
    try:
        with open_table(found.files[0], pre_buffer=False, buffer_size=READ_AHEAD) as table:
            for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(chosen.values()), use_threads=False):
                columns = {
                    role: _cells(arrow, batch.column(batch.schema.get_field_index(name)))
                    for role, name in chosen.items()
                }
                for cells in zip(*columns.values(), strict=True):
                    number += 1
                    yield f"row {number}", dict(zip(columns, cells, strict=True))
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{found.files[0]}, after row {number}: cannot be read on ({error}). Is the file whole?"
        ) from error


def _cells(arrow: Any, column: Any) -> list[Any]:
    """Plain Python values; Python has no nanoseconds, and text may come as bytes."""
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
    elif arrow.types.is_binary(column.type) or arrow.types.is_large_binary(column.type):
        column = column.cast(arrow.large_string())
    return list(column.to_pylist())


def _jsonl(found: Found, tolerance: Tolerance, chosen: Mapping[str, str]) -> Iterator[Row]:
    """A row may lack what is optional, so each is asked for it, not the first alone."""
    file = found.files[0]
    optional = {role: known for role, known in ROLES[found.kind].items() if role not in chosen}
    for number, text in lines(file, tolerance):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            tolerance.bad(file, f"line {number}", f"not JSON ({error})")
            continue
        if not isinstance(row, dict):
            tolerance.bad(file, f"line {number}", f"{shown(row)}, expected an object")
            continue
        if "\\u" in text and not is_unicode(row):
            tolerance.bad(
                file, f"line {number}", "half of a surrogate pair (an escape such as \\ud800), which is no text"
            )
            continue
        cells = {role: row.get(name) for role, name in chosen.items()}
        further = {role: names for role, known in optional.items() if (names := named(row, known))}
        twice = next((names for names in further.values() if len(names) > 1), None)
        if twice is not None:
            tolerance.bad(file, f"line {number}", f"both {' and '.join(twice)}, expected one of them")
            continue
        yield f"line {number}", cells | {role: row[name] for role, (name,) in further.items()}


def is_unicode(value: Any) -> bool:
    """Whether UTF-8 can hold every text in ``value``; JSON escapes can also spell half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True

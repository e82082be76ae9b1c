"""Rows of tables that people bring: CSV, TSV, Parquet and JSON lines, a row at a time, as role -> cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from negwise.data.opening import delimited, lines
from negwise.data.problems import Tolerance, shown
from negwise.data.recognise import Found
from negwise.errors import require

BATCH_ROWS = 4096

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
    number = 0
    with require("pyarrow.parquet", extra="train").ParquetFile(found.files[0]) as table:
        for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(chosen.values())):
            columns = {
                role: batch.column(batch.schema.get_field_index(name)).to_pylist() for role, name in chosen.items()
            }
            for cells in zip(*columns.values(), strict=True):
                number += 1
                yield f"row {number}", dict(zip(columns, cells, strict=True))


def _jsonl(found: Found, tolerance: Tolerance, chosen: Mapping[str, str]) -> Iterator[Row]:
    file = found.files[0]
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
        yield f"line {number}", {role: row.get(name) for role, name in chosen.items()}

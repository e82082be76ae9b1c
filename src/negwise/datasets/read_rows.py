"""Reads CSV, TSV, Parquet and JSON lines row by row, each row as role -> cell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from negwise.datasets.formats import ROLES, DetectedFormat, matching_names, numbered_negatives
from negwise.datasets.text_input import BadRows, read_delimited, read_lines
from negwise.errors import InputError, quote, require

BATCH_ROWS = 512
READ_AHEAD = 2**16
"""Bytes of a column to read ahead. Without a limit pyarrow holds a whole row group, which may be the whole file."""

Row = tuple[str, dict[str, Any]]
"""Where the row is in its file, and its cells by role."""


def read_rows(detected: DetectedFormat, bad_rows: BadRows, chosen: Mapping[str, str]) -> Iterator[Row]:
    read = {"csv": _csv_rows, "parquet": _parquet_rows, "jsonl": _jsonl_rows}[detected.form]
    return read(detected, bad_rows, chosen)


def _csv_rows(detected: DetectedFormat, bad_rows: BadRows, chosen: Mapping[str, str]) -> Iterator[Row]:
    file = detected.files[0]
    place = {role: detected.names.index(name) for role, name in chosen.items()}
    rows = read_delimited(file, bad_rows, detected.delimiter)
    next(rows)
    for number, cells in rows:
        if len(cells) != len(detected.names):
            bad_rows.add_row(file, f"line {number}", f"{len(cells)} cells, but the header names {len(detected.names)}")
            continue
        yield f"line {number}", {role: cells[at] for role, at in place.items()}


def _parquet_rows(detected: DetectedFormat, _: BadRows, chosen: Mapping[str, str]) -> Iterator[Row]:
    arrow, number = require("pyarrow", extra="train"), 0
    open_table = require("pyarrow.parquet", extra="train").ParquetFile
    try:
        with open_table(detected.files[0], pre_buffer=False, buffer_size=READ_AHEAD) as table:
            for batch in table.iter_batches(batch_size=BATCH_ROWS, columns=list(chosen.values()), use_threads=False):
                columns = {
                    role: _python_values(arrow, batch.column(batch.schema.get_field_index(name)))
                    for role, name in chosen.items()
                }
                for cells in zip(*columns.values(), strict=True):
                    number += 1
                    yield f"row {number}", dict(zip(columns, cells, strict=True))
    except (arrow.ArrowException, OSError) as error:
        raise InputError(
            f"{detected.files[0]}, after row {number}: reading failed ({error}). Is the file complete?"
        ) from error


def _python_values(arrow: Any, column: Any) -> list[Any]:
    """Plain Python values: nanoseconds, which Python lacks, become microseconds, and bytes become text."""
    if arrow.types.is_timestamp(column.type):
        column = column.cast(arrow.timestamp("us", column.type.tz), safe=False)
    elif arrow.types.is_binary(column.type) or arrow.types.is_large_binary(column.type):
        column = column.cast(arrow.large_string())
    return list(column.to_pylist())


def _jsonl_rows(detected: DetectedFormat, bad_rows: BadRows, chosen: Mapping[str, str]) -> Iterator[Row]:
    """Optional columns are looked up in every row, because rows may lack them."""
    file = detected.files[0]
    optional = {role: known for role, known in ROLES[detected.kind].items() if role not in chosen}
    for number, text in read_lines(file, bad_rows):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            bad_rows.add_row(file, f"line {number}", f"not JSON ({error})")
            continue
        if not isinstance(row, dict):
            bad_rows.add_row(file, f"line {number}", f"{quote(row)}, expected an object")
            continue
        if "\\u" in text and not is_unicode(row):
            bad_rows.add_row(
                file, f"line {number}", "half of a surrogate pair (an escape such as \\ud800), which is not valid text"
            )
            continue
        cells = {role: row.get(name) for role, name in chosen.items()}
        further = {role: names for role, known in optional.items() if (names := matching_names(row, known))}
        twice = next((names for names in further.values() if len(names) > 1), None)
        if twice is not None:
            bad_rows.add_row(file, f"line {number}", f"both {' and '.join(twice)}, expected one of them")
            continue
        if detected.kind == "pairs":
            cells |= {role: row[name] for role, name in numbered_negatives(row).items()}
        yield f"line {number}", cells | {role: row[name] for role, (name,) in further.items()}


def is_unicode(value: Any) -> bool:
    """Whether UTF-8 can encode every text in ``value``. JSON escapes can also spell half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True

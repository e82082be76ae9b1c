"""Rows of files that people have, a batch at a time: CSV, TSV, JSON lines, Parquet and plain lines in; the same out."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from negwise.errors import InputError, quote, require
from negwise.files import replacing
from negwise.inference.encoding import Floats

ROWS = 4096
"""Rows that are read at a time."""
DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
READABLE = (*DELIMITERS, *LINES, ".parquet", ".txt")
WRITABLE = (*DELIMITERS, *LINES, ".parquet")
Rows = list[dict[str, Any]]


def read_rows(path: str | PathLike[str], columns: Sequence[str] | None = None, size: int = ROWS) -> Iterator[Rows]:
    """Rows as dictionaries, ``size`` at a time; ``columns`` are those that are wanted. A ``.txt`` has ``text`` alone.

    What stands in a CSV is text. A value in JSON or Parquet is what it is.
    """
    file = Path(path)
    ending = file.suffix.lower()
    if ending not in READABLE:
        raise InputError(f"{file}: got the ending {ending!r}, expected one of {', '.join(READABLE)}.")
    if not file.is_file():
        raise InputError(f"{file}: no such file.")
    if ending == ".parquet":
        return _parquet(file, columns, size)
    return _batched(_delimited(file) if ending in DELIMITERS else _lines(file, ending), size)


def column_names(path: str | PathLike[str]) -> list[str]:
    """The columns of a file; of JSON lines, those of the first."""
    first = next(read_rows(path, size=1), [])
    return list(first[0]) if first else []


def _batched(rows: Iterator[dict[str, Any]], size: int) -> Iterator[Rows]:
    part: Rows = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _delimited(file: Path) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, delimiter=DELIMITERS[file.suffix.lower()], strict=True)
            header = next(reader, [])
            if len(set(header)) < len(header):
                raise InputError(f"{file}: got the columns {', '.join(header)}, expected each name once.")
            for cells in reader:
                if len(cells) != len(header):
                    if not cells:
                        continue  # an empty line
                    raise InputError(
                        f"{file}, line {reader.line_num}: {len(cells)} cells, expected the {len(header)} of the header."
                    )
                yield dict(zip(header, cells, strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{file}: no table in UTF-8 ({error}). Save it as CSV in UTF-8.") from error


def _lines(file: Path, ending: str) -> Iterator[dict[str, Any]]:
    try:
        with file.open(encoding="utf-8-sig", newline="\n") as lines:
            for number, line in enumerate(lines, 1):
                text = line.rstrip("\r\n")
                if ending == ".txt":
                    yield {"text": text}
                elif text.strip():
                    yield _object(text, f"{file}, line {number}")
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: no text in UTF-8 ({error}). Save it in UTF-8.") from error


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}).") from error
    if not isinstance(found, dict):
        raise InputError(f'{where}: got {quote(found)}, expected an object, as {{"text": ...}}.')
    return found


def _parquet(file: Path, columns: Sequence[str] | None, size: int) -> Iterator[Rows]:
    pa, parquet = require("pyarrow", extra="train"), require("pyarrow.parquet", extra="train")
    try:
        with parquet.ParquetFile(file) as opened:
            there = opened.schema_arrow.names
            wanted = None if columns is None else [name for name in columns if name in there]
            for batch in opened.iter_batches(size, columns=wanted):
                yield batch.to_pylist()
    except pa.ArrowException as error:
        raise InputError(f"{file}: no Parquet file that can be read ({error}).") from error


@contextmanager
def row_writer(path: str | PathLike[str], schema: Any) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that appends columns to a file, which is there when all is written. ``schema`` is Arrow's.

    A list of numbers is one column in JSON lines and Parquet; a CSV gets a column for each of its places.
    """
    pa = require("pyarrow", extra="train")
    ending = Path(path).suffix.lower()
    if ending not in WRITABLE:
        raise InputError(f"{path}: got the ending {ending!r}, expected one of {', '.join(WRITABLE)}.")
    with replacing(path) as temporary:
        if ending == ".parquet":
            parquet = require("pyarrow.parquet", extra="train")
            with parquet.ParquetWriter(temporary, schema) as file:
                yield lambda columns: file.write_table(pa.table(dict(columns), schema=schema))
        elif ending in LINES:
            with temporary.open("w", encoding="utf-8") as lines:

                def append(columns: Mapping[str, Any]) -> None:
                    for row in pa.table(dict(columns), schema=schema).to_pylist():
                        lines.write(json.dumps(row, ensure_ascii=False) + "\n")

                yield append
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                writer = csv.writer(text, delimiter=DELIMITERS[ending], lineterminator="\n")
                writer.writerow([name for one in schema for name in _flat_names(one)])

                def append_cells(columns: Mapping[str, Any]) -> None:
                    table = pa.table(dict(columns), schema=schema)
                    for row in zip(*(table[one.name].to_pylist() for one in schema), strict=True):
                        writer.writerow([cell for value in row for cell in _flat(value)])

                yield append_cells


def write_table(path: str | PathLike[str], table: Any) -> None:
    """An Arrow table as a file."""
    with row_writer(path, table.schema) as write:
        write({name: table[name] for name in table.column_names})


@contextmanager
def array_writer(path: str | PathLike[str], width: int) -> Iterator[Callable[[Floats], None]]:
    """A function that appends vectors (n, width) to a ``.npy``, which is there when all is written."""
    rows = 0
    with replacing(path) as temporary, temporary.open("wb") as file:

        def header() -> None:
            shape = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
            np.lib.format.write_array_header_1_0(file, shape)

        def append(vectors: Floats) -> None:
            nonlocal rows
            rows += len(vectors)
            file.write(np.ascontiguousarray(vectors, "<f4").tobytes())

        header()
        start = file.tell()
        yield append
        file.seek(0)
        header()
        if file.tell() != start:  # NumPy leaves room for as many rows as there may be
            raise InputError(f"{path}: the header of the array grew. Write .parquet instead.")


def _flat_names(field: Any) -> list[str]:
    size = getattr(field.type, "list_size", None)
    return [field.name] if size is None else [f"{field.name}_{place}" for place in range(size)]


def _flat(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

"""Rows of files that people have, a batch at a time: CSV, TSV, JSON lines, Parquet and plain lines in; the same out.

Text may be compressed: gzip, xz and zstd are unpacked, and a name that ends in ``.gz`` is packed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from negwise.datasets.line_blocks import open_bytes
from negwise.errors import InputError, quote, require
from negwise.files import replacing
from negwise.inference.encoding import Floats
from negwise.stages import Progress

ROWS = 4096
"""Rows that are read at a time."""
DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
PACKED = (".gz", ".xz", ".zst")
READABLE = (*DELIMITERS, *LINES, ".parquet", ".txt")
WRITABLE = (*DELIMITERS, *LINES, ".parquet")
Rows = list[dict[str, Any]]


def read_rows(
    path: str | PathLike[str],
    columns: Sequence[str] | None = None,
    size: int = ROWS,
    progress: Progress = lambda _: None,
) -> Iterator[Rows]:
    """Rows as dictionaries, ``size`` at a time; ``columns`` are those that are wanted. A ``.txt`` has ``text`` alone.

    What stands in a CSV is text. A value in JSON or Parquet is what it is. ``progress`` is told the share of the file
    that was read, once the rows were used.
    """
    file = Path(path)
    ending, packed = ending_of(file)
    if ending not in READABLE or (packed and ending == ".parquet"):
        raise InputError(
            f"{file}: got the ending {ending + packed!r}, expected one of {', '.join(READABLE)}; of text also "
            f"{', '.join(PACKED)} after it."
        )
    if not file.is_file():
        raise InputError(f"{file}: no such file.")
    return _parquet(file, columns, size, progress) if ending == ".parquet" else _text_rows(file, ending, size, progress)


def column_names(path: str | PathLike[str]) -> list[str]:
    """The columns of a file; of JSON lines, those of the first."""
    file, first = Path(path), next(read_rows(path, size=1), [])
    names = list(first[0]) if first else _header(file)
    if not names:
        raise InputError(f"{file}: empty, expected a file with rows.")
    return names


def _header(file: Path) -> list[str]:
    """The columns of a file without rows."""
    ending, _ = ending_of(file)
    if ending == ".parquet":
        return list(require("pyarrow.parquet", extra="train").read_schema(file).names)
    if ending not in DELIMITERS:
        return []
    with _open_text(file, "") as (text, _, _):
        return next(csv.reader(text, delimiter=DELIMITERS[ending]), [])


def ending_of(path: str | PathLike[str]) -> tuple[str, str]:
    """``.csv`` and ``.gz`` of texts.csv.gz; the second is empty for a file that is not compressed."""
    file = Path(path)
    last = file.suffix.lower()
    return (Path(file.stem).suffix.lower(), last) if last in PACKED else (last, "")


def check_apart(out: str | PathLike[str] | None, *read: str | PathLike[str] | None) -> None:
    """Refuse to write over a file that is read."""
    there = [path for path in read if path is not None and Path(path).exists()]
    if out is not None and Path(out).exists() and any(Path(out).samefile(path) for path in there):
        raise InputError(f"{out}: it is read from and would be lost, expected another name for the result.")


def _text_rows(file: Path, ending: str, size: int, progress: Progress) -> Iterator[Rows]:
    # The csv module finds the ends of rows itself; elsewhere only \n ends a line.
    table = ending in DELIMITERS
    with _open_text(file, "" if table else "\n") as (text, raw, total):
        rows = _delimited(file, text, DELIMITERS[ending]) if table else _lines(file, text, ending)
        for part in _batched(rows, size):
            yield part
            progress(raw.tell() / total)


@contextmanager
def _open_text(file: Path, line_end: str) -> Iterator[tuple[TextIO, Any, int]]:
    """The text of a file, the stream of its bytes, and how many they are."""
    try:
        with open_bytes(file) as (stream, raw, total), io.TextIOWrapper(stream, "utf-8-sig", newline=line_end) as text:
            yield text, raw, total
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: no text in UTF-8 ({error}). Save it in UTF-8.") from error
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        raise InputError(f"{file}: reading failed ({error}). Is the file complete?") from error


def _batched(rows: Iterator[dict[str, Any]], size: int) -> Iterator[Rows]:
    part: Rows = []
    for row in rows:
        part.append(row)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part


def _delimited(file: Path, text: TextIO, delimiter: str) -> Iterator[dict[str, Any]]:
    try:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        header = next(reader, [])
        if len(set(header)) < len(header):
            raise InputError(
                f"{file}: the first line is the header; got {quote(', '.join(header), 120)}, expected each name once."
            )
        for cells in reader:
            if len(cells) != len(header):
                if not cells:
                    continue  # an empty line
                raise InputError(
                    f"{file}, line {reader.line_num}: {len(cells)} cells, expected the {len(header)} of the header."
                )
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: not a row of a table ({error}).") from error


def _lines(file: Path, text: TextIO, ending: str) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(text, 1):
        line = line.rstrip("\r\n")
        if ending == ".txt":
            yield {"text": line}
        elif line.strip():
            yield _object(line, f"{file}, line {number}")


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}).") from error
    if not isinstance(found, dict):
        raise InputError(f'{where}: got {quote(found)}, expected an object, as {{"text": ...}}.')
    return found


def _parquet(file: Path, columns: Sequence[str] | None, size: int, progress: Progress) -> Iterator[Rows]:
    pa, parquet = require("pyarrow", extra="train"), require("pyarrow.parquet", extra="train")
    done = 0
    try:
        with parquet.ParquetFile(file) as opened:
            there, total = opened.schema_arrow.names, opened.metadata.num_rows
            wanted = None if columns is None else [name for name in columns if name in there]
            for batch in opened.iter_batches(size, columns=wanted):
                yield batch.to_pylist()
                done += len(batch)
                progress(done / total)
    except pa.ArrowException as error:
        raise InputError(f"{file}: no Parquet file that can be read ({error}).") from error


def check_ending(path: str | PathLike[str], *more: str) -> tuple[str, str]:
    """`ending_of` a file to write, which has to be one of `WRITABLE` or ``more``."""
    ending, packed = ending_of(path)
    if ending in more and not packed:
        return ending, packed
    if ending not in WRITABLE or packed not in ("", ".gz") or (packed and ending == ".parquet"):
        raise InputError(
            f"{path}: got the ending {ending + packed!r}, expected one of {', '.join((*more, *WRITABLE))}; of text "
            "also .gz after it."
        )
    return ending, packed


@contextmanager
def row_writer(path: str | PathLike[str], schema: Any) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that appends columns to a file, which is there when all is written. ``schema`` is Arrow's.

    A list of numbers is one column in JSON lines and Parquet; a CSV gets a column for each of its places.
    """
    pa = require("pyarrow", extra="train")
    ending, packed = check_ending(path)
    with replacing(path) as temporary:
        if ending == ".parquet":
            parquet = require("pyarrow.parquet", extra="train")
            with parquet.ParquetWriter(temporary, schema) as file:
                yield lambda columns: file.write_table(pa.table(dict(columns), schema=schema))
            return
        with _text_to(temporary, bool(packed)) as text:
            if ending in LINES:

                def append(columns: Mapping[str, Any]) -> None:
                    for row in pa.table(dict(columns), schema=schema).to_pylist():
                        text.write(json.dumps(row, ensure_ascii=False) + "\n")

                yield append
            else:
                writer = csv.writer(text, delimiter=DELIMITERS[ending], lineterminator="\n")
                writer.writerow([name for one in schema for name in _flat_names(one)])

                def append_cells(columns: Mapping[str, Any]) -> None:
                    table = pa.table(dict(columns), schema=schema)
                    for row in zip(*(table[one.name].to_pylist() for one in schema), strict=True):
                        writer.writerow([cell for value in row for cell in _flat(value)])

                yield append_cells


@contextmanager
def _text_to(path: Path, packed: bool) -> Iterator[TextIO]:
    """``path`` for text. What is packed has no name and no time in it, so that equal rows are equal files."""
    with path.open("wb") as raw:
        stream: Any = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if packed else raw
        with io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
            yield text


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

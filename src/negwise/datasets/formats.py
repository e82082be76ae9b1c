"""Detects the kind of data at a path from its content.

========================  =====================================================================
kind                      detected by
========================  =====================================================================
``mind``                  a folder with news.tsv and behaviors.tsv, or with subfolders that have them
``movielens``             ``1::1193::5::978300760`` lines, or a header userId,movieId,rating,timestamp
``sasrec``                lines of two whole numbers
``interactions``          a table or JSON lines with columns for user and item
``pairs``                 a table or JSON lines with columns for left and right
========================  =====================================================================

Which files a folder or a pattern means: `negwise.datasets.file_layouts`.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from negwise.datasets.arrow_files import column_names, form_of
from negwise.datasets.data_names import shown
from negwise.datasets.file_layouts import find_files
from negwise.datasets.line_blocks import first_bytes, head_lines
from negwise.datasets.partitions import Partition
from negwise.datasets.table_columns import kind_of_columns
from negwise.errors import InputError, quote

EMBEDDED = ("docs", "clicks")
"""Names of data sets that need no file."""
_HEAD = 20
_FEATHER_1 = b"FEA1"
_MOVIELENS = ("userid", "movieid", "rating")
_ARCHIVES = {b"PK\x03\x04": "a ZIP archive. Unpack it"}


@dataclass(frozen=True)
class DetectedFormat:
    """``files`` of ``kind``. For MIND: news and behaviors of each part in turn, with the names of the ``parts``.

    ``names`` are the columns, ``headers`` those of each file in its own order. ``ignored``: (file, why it is not read).
    """

    kind: str
    form: str
    """One of mind, dat, csv, spaces, jsonl, parquet, arrow and arrow-stream."""
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()
    delimiter: str = ","
    parts: tuple[str, ...] = ()
    headers: tuple[tuple[str, ...], ...] = ()
    ignored: tuple[tuple[str, str], ...] = ()
    partitions: tuple[Partition, ...] = ()
    """Columns that the folders of each file have in their names; their names follow the others in ``names``."""


def detect_format(path: Path, columns: Mapping[str, str]) -> DetectedFormat:
    found = find_files(path, f" Embedded data: {', '.join(EMBEDDED)}.")
    if found.parts:
        return DetectedFormat("mind", "mind", found.files, parts=found.parts)
    first, *others = found.files
    keys = tuple(found.partitions[0]) if found.partitions else ()
    detected = replace(_detect_file(first, columns, keys), files=found.files, ignored=found.ignored)
    headers = [detected.names, *(_same_columns(detected, file, columns, keys) for file in others)]
    names = (*detected.names, *(key for key in keys if key not in detected.names))
    return replace(detected, names=names, headers=tuple(headers), partitions=found.partitions)


def _same_columns(
    detected: DetectedFormat, file: Path, columns: Mapping[str, str], keys: tuple[str, ...]
) -> tuple[str, ...]:
    """The columns of a further file. Several files are one table: each has to have the columns of the first."""
    other = _detect_file(file, columns, keys)
    if (other.kind, other.form, other.delimiter) != (detected.kind, detected.form, detected.delimiter) or (
        set(other.names) != set(detected.names) and detected.form != "jsonl"
    ):
        names = ", ".join(one.name for one in detected.files[:8])
        raise InputError(
            f"{file}: {other.kind} as {other.form} with the columns {quote(', '.join(other.names), 120)}, but "
            f"{detected.files[0].name} is {detected.kind} as {detected.form} with "
            f"{quote(', '.join(detected.names), 120)}. Files of one data set have the same columns; found {names}. "
            "Pass the file, or a pattern such as 'part-*.csv'."
        )
    return other.names


def _detect_file(path: Path, columns: Mapping[str, str], keys: tuple[str, ...]) -> DetectedFormat:
    """The form and the kind of a file. ``keys`` are columns that it has beside its own."""
    start = first_bytes(path)
    form = form_of(start)
    if form is not None:
        names = column_names(path, form)
        return DetectedFormat(_kind(path, (*names, *keys), columns), form, (path,), names)
    if start.startswith(_FEATHER_1):
        new = f"{path.stem}.parquet"
        raise InputError(
            f'{path}: Feather version 1, expected version 2 or Parquet. Type: python -c "from pyarrow import feather, '
            f"parquet; parquet.write_table(feather.read_table('{path.name}'), '{new}')\""
        )
    for magic, what in _ARCHIVES.items():
        if start.startswith(magic):
            raise InputError(f"{path}: {what}, and pass the file or folder that was in it.")
    lines, undecodable = head_lines(path, _HEAD)
    head = [text for _, text in lines if text.strip()]
    if "\0" in "".join(head[:1]) or (undecodable and not head):
        raise InputError(_not_text(path, start))
    if not head:
        raise InputError(f"{path}: the file is empty.")
    first = head[0]
    if first.lstrip().startswith("{"):
        names = _json_names(path, head, columns)
        return DetectedFormat(_kind(path, (*names, *keys), columns), "jsonl", (path,), names)
    if first.lstrip().startswith("["):
        raise InputError(
            f"{path}: begins like a JSON list, expected one object per line. Type: jq -c '.[]' {path.name} > NEW."
        )
    if re.fullmatch(r"\d+(::[^:]+){2,3}", first):
        return DetectedFormat("movielens", "dat", (path,), ("user", "item", "rating", "time"))
    if re.fullmatch(r"\s*\d+[ \t]+\d+\s*", first):
        return DetectedFormat("sasrec", "spaces", (path,), ("user", "item"))
    if re.match(r"\d+\tU\d+\t", first) or re.match(r"N\d+\t", first):
        raise InputError(f"{path}: one file of MIND. Pass its folder, which has news.tsv and behaviors.tsv.")
    delimiter = max(",\t;", key=first.count)
    try:
        names = tuple(next(csv.reader([first], delimiter=delimiter)))
    except csv.Error as error:
        raise InputError(f"{path}, line {lines[0][0]}: not a header ({error}). Lines end in LF or CR LF.") from error
    if "\r" in first:
        raise InputError(f"{path}, line {lines[0][0]}: not a header. Lines end in LF or CR LF.")
    if tuple(name.lower() for name in names[:3]) == _MOVIELENS and len(names) == 4:
        return DetectedFormat("movielens", "csv", (path,), names, delimiter)
    return DetectedFormat(_kind(path, (*names, *keys), columns), "csv", (path,), names, delimiter)


def _not_text(path: Path, start: bytes) -> str:
    if start.startswith((b"\xff\xfe", b"\xfe\xff")) or start[1:2] == b"\0" or start[:1] == b"\0":
        return f"{path}: not UTF-8 text. From another encoding: iconv -f UTF-16 -t UTF-8 {path.name} > NEW."
    return (
        f"{path}: not UTF-8 text, nor Parquet, Feather or Arrow (it begins with the bytes {start[:4].hex(' ')}). "
        f"From another encoding: iconv -f LATIN1 -t UTF-8 {path.name} > NEW."
    )


def _json_names(path: Path, head: Sequence[str], columns: Mapping[str, str]) -> tuple[str, ...]:
    """The keys of the first objects, in the order of appearance."""
    names: dict[str, None] = {}
    for text in head:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the reader will report it with its line number
        if isinstance(row, dict):
            names |= dict.fromkeys(row)
            if kind_of_columns(tuple(row), columns) == "pairs":
                break  # rows of pairs may differ in their optional keys, which are looked up in each
    if not names:
        raise InputError(
            f"{path}: begins like JSON lines, but none of the first lines is a JSON object: {quote(head[0])}."
        )
    return tuple(names)


def _kind(path: Path, names: tuple[str, ...], columns: Mapping[str, str]) -> str:
    kind = kind_of_columns(names, columns)
    if kind is None:
        raise InputError(
            f"{shown(path)}: columns {quote(', '.join(names), 200)} are neither interactions (user, item, time, "
            "impression, label) nor text pairs (left, right, negatives; or query, pos, neg). "
            "Use such names in the header, or map them: --column user=NAME --column item=NAME, or "
            "--column left=NAME --column right=NAME."
        )
    return kind

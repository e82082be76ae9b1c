"""What kind of data a path holds, from its content.

========================  =====================================================================
kind                      recognised by
========================  =====================================================================
``mind``                  a folder with news.tsv and behaviors.tsv, or folders in it that have them
``movielens``             ``1::1193::5::978300760`` lines, or a header userId,movieId,rating,timestamp
``sasrec``                lines of two whole numbers
``interactions``          a table with columns for user and item
``pairs``                 a table or JSON lines with columns for left and right
========================  =====================================================================
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from negwise.datasets.columns import kind_of
from negwise.datasets.opening import PARQUET, lines, magic
from negwise.datasets.problems import Tolerance, shown
from negwise.errors import InputError, require

ENDINGS = ("", ".gz", ".xz", ".zst")
PARTS = ("train", "dev", "test")
RATINGS = ("ratings.dat", "ratings.csv")
EMBEDDED = ("docs", "clicks")
"""Data that no file holds."""


@dataclass(frozen=True)
class Found:
    """``files`` of ``kind``; for MIND, news and behaviours of each part in turn, ``parts`` naming the parts."""

    kind: str
    form: str
    """mind, dat, csv, spaces, jsonl or parquet."""
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()
    delimiter: str = ","
    parts: tuple[str, ...] = ()


def recognise(path: Path, columns: Mapping[str, str]) -> Found:
    if path.is_dir():
        return _folder(path, columns)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Embedded data: {', '.join(EMBEDDED)}.")
    if not path.is_file():
        raise InputError(f"{path}: neither a file nor a folder.")
    return _file(path, columns)


def _folder(path: Path, columns: Mapping[str, str]) -> Found:
    if _one(path, "behaviors.tsv") is not None:
        return Found("mind", "mind", _mind_files(path), parts=("",))
    if _one(path, "news.tsv") is not None:
        raise InputError(f"{path}: news.tsv without behaviors.tsv; MIND's folders hold both.")
    folders = sorted(
        folder for folder in path.iterdir() if folder.is_dir() and _one(folder, "behaviors.tsv") is not None
    )
    if folders:
        named = {part: [f for f in folders if re.search(rf"(^|[^a-z]){part}$", f.name.lower())] for part in PARTS}
        strange = [f.name for f in folders if not any(f in found for found in named.values())]
        twice = [part for part, found in named.items() if len(found) > 1]
        if strange or twice:
            names = ", ".join(folder.name for folder in folders)
            raise InputError(f"{path}: MIND folders {names}; expected at most one each of train, dev and test.")
        files = [file for part in PARTS for folder in named[part] for file in _mind_files(folder)]
        return Found("mind", "mind", tuple(files), parts=tuple(part for part in PARTS if named[part]))
    ratings = [file for name in RATINGS if (file := _one(path, name)) is not None]
    files = ratings or [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
    if len(files) != 1:
        names = ", ".join(file.name for file in files[:8]) or "nothing"
        raise InputError(
            f"{path}: neither MIND nor ratings.dat/ratings.csv nor one data file, but {names}. Pass the file."
        )
    return _file(files[0], columns)


def _one(folder: Path, name: str) -> Path | None:
    found = [folder / (name + ending) for ending in ENDINGS if (folder / (name + ending)).is_file()]
    if len(found) > 1:
        raise InputError(f"{folder}: {' and '.join(file.name for file in found)}; expected one of them.")
    return found[0] if found else None


def _mind_files(folder: Path) -> tuple[Path, Path]:
    news, behaviors = _one(folder, "news.tsv"), _one(folder, "behaviors.tsv")
    if news is None or behaviors is None:
        raise InputError(f"{folder}: behaviors.tsv without news.tsv; MIND's folders hold both.")
    return news, behaviors


def _file(path: Path, columns: Mapping[str, str]) -> Found:
    if magic(path).startswith(PARQUET[:4]):
        names = _parquet_names(path)
        return Found(_kind(path, names, columns), "parquet", (path,), names)
    strange = Tolerance()
    head = [text for _, text in itertools.islice(lines(path, strange), 20) if text.strip()]
    if "\0" in "".join(head[:1]) or (strange.count and not head):
        raise InputError(f"{path}: not UTF-8 text. From another encoding: iconv -f UTF-16 -t UTF-8 {path.name} > NEW.")
    if not head:
        raise InputError(f"{path}: the file is empty.")
    first = head[0]
    if first.lstrip().startswith("{"):
        names = _json_names(path, head)
        kind = _kind(path, names, columns)
        if kind != "pairs":
            raise InputError(f"{path}: {kind} as JSON lines. Write them as CSV or Parquet; JSON lines hold text pairs.")
        return Found(kind, "jsonl", (path,), names)
    if first.lstrip().startswith("["):
        raise InputError(
            f"{path}: begins like a JSON list, expected an object a line. Type: jq -c '.[]' {path.name} > NEW."
        )
    if re.fullmatch(r"\d+(::[^:]+){2,3}", first):
        return Found("movielens", "dat", (path,))
    if re.fullmatch(r"\s*\d+[ \t]+\d+\s*", first):
        return Found("sasrec", "spaces", (path,))
    if re.match(r"\d+\tU\d+\t", first) or re.match(r"N\d+\t", first):
        raise InputError(f"{path}: a file of MIND. Pass its folder, which holds news.tsv and behaviors.tsv.")
    delimiter = max(",\t;", key=first.count)
    try:
        names = tuple(next(csv.reader([first], delimiter=delimiter)))
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a header ({error}). Lines end in LF or CR LF.") from error
    if [name.lower() for name in names[:3]] == ["userid", "movieid", "rating"]:
        return Found("movielens", "csv", (path,), names, delimiter)
    return Found(_kind(path, names, columns), "csv", (path,), names, delimiter)


def _parquet_names(path: Path) -> tuple[str, ...]:
    arrow = require("pyarrow", extra="train")
    try:
        return tuple(require("pyarrow.parquet", extra="train").read_schema(path).names)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error}). Is the file whole?") from error


def _json_names(path: Path, head: Sequence[str]) -> tuple[str, ...]:
    for text in head:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the reader reports it, with its line
        if isinstance(row, dict):
            return tuple(row)
    raise InputError(f"{path}: begins like JSON lines, but none of the first lines is an object: {shown(head[0])}.")


def _kind(path: Path, names: tuple[str, ...], columns: Mapping[str, str]) -> str:
    kind = kind_of(names, columns)
    if kind is None:
        raise InputError(
            f"{path}: columns {shown(', '.join(names), 200)} are neither interactions (user, item, time, impression, "
            "label) nor text pairs (left, right, negatives; or query, pos, neg). "
            "Put such names into the header, or say which is which: --column user=NAME --column item=NAME, or "
            "--column left=NAME --column right=NAME."
        )
    return kind

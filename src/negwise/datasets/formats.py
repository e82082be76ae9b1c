"""Detects the kind of data at a path from its content, and the role of each column of a table.

========================  =====================================================================
kind                      detected by
========================  =====================================================================
``mind``                  a folder with news.tsv and behaviors.tsv, or with subfolders that have them
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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from negwise.datasets.text_input import PARQUET_MAGIC, BadRows, first_bytes, read_lines
from negwise.errors import InputError, quote, require

COMPRESSED_ENDINGS = ("", ".gz", ".xz", ".zst")
SPLIT_FOLDERS = ("train", "dev", "test")
RATINGS = ("ratings.dat", "ratings.csv")
EMBEDDED = ("docs", "clicks")
"""Names of data sets that need no file."""

INTERACTIONS = {
    "user": {"user", "userid", "uid", "visitor", "visitorid", "customer", "customerid"},
    "item": {
        "item",
        "itemid",
        "iid",
        "movie",
        "movieid",
        "product",
        "productid",
        "news",
        "newsid",
        "article",
        "articleid",
    },
    "time": {"time", "timestamp", "datetime", "date", "ts"},
    "impression": {"impression", "impressionid"},
    "label": {"label", "click", "clicked"},
}
PAIRS = {
    "left": {"left", "query", "title", "question", "anchor"},
    "right": {"right", "pos", "positive", "body", "answer", "abstract"},
    "negatives": {"negatives", "neg", "negative"},
}
NEGATIVE = "negative "
"""What the roles of numbered columns of negatives begin with."""
_NUMBERED = re.compile(r"neg(?:ative)?s?(\d{1,9})")
NEEDED = {"interactions": ("user", "item"), "pairs": ("left", "right")}
ROLES = {"interactions": INTERACTIONS, "pairs": PAIRS}


@dataclass(frozen=True)
class DetectedFormat:
    """``files`` of ``kind``. For MIND: news and behaviors of each part in turn, with the names of the ``parts``."""

    kind: str
    form: str
    """One of mind, dat, csv, spaces, jsonl and parquet."""
    files: tuple[Path, ...]
    names: tuple[str, ...] = ()
    delimiter: str = ","
    parts: tuple[str, ...] = ()


def detect_format(path: Path, columns: Mapping[str, str]) -> DetectedFormat:
    if path.is_dir():
        return _detect_folder(path, columns)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder. Embedded data: {', '.join(EMBEDDED)}.")
    if not path.is_file():
        raise InputError(f"{path}: neither a file nor a folder.")
    return _detect_file(path, columns)


def choose_columns(path: Path, kind: str, names: Sequence[str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Role -> column, for the roles that the table has; names decide, and an ambiguous role is an error."""
    roles = ROLES[kind]
    for role, name in wanted.items():
        if role not in roles:
            raise InputError(f"columns: {role!r} is not a role of {kind}; the roles are {', '.join(roles)}.")
        if name not in names:
            raise InputError(f"{path}: no column {name!r} for the role {role}. Columns: {', '.join(names)}.")
    chosen = dict(wanted)
    for role, known in roles.items():
        found = [] if role in chosen else matching_names(names, known)
        if len(found) > 1:
            raise InputError(
                f"{path}: {role} could be any of {', '.join(found)}. Choose one, in Python: columns={{'{role}': NAME}}."
            )
        if found:
            chosen[role] = found[0]
    if kind == "pairs":
        chosen |= numbered_negatives(names)
    missing = [role for role in NEEDED[kind] if role not in chosen]
    if missing:
        raise InputError(f"{path}: no column for {', '.join(missing)}. Columns: {', '.join(names)}.")
    if "impression" in chosen and "label" not in chosen:
        raise InputError(f"{path}: impressions need a label column (1 clicked, 0 shown and not clicked). Add one.")
    return chosen


def numbered_negatives(names: Iterable[str]) -> dict[str, str]:
    """Columns of one negative each, such as ``neg_1`` or ``negative_2``, in the order of their numbers."""
    found = sorted((int(match[1]), name) for name in names if (match := _NUMBERED.fullmatch(_normalize(name))))
    return {f"{NEGATIVE}{number}": name for number, name in found}


def matching_names(names: Iterable[str], known: set[str]) -> list[str]:
    """The names that match one of ``known`` in any spelling: ``User ID``, ``user_id``, ``userId``."""
    return [name for name in names if _normalize(name) in known]


def _detect_folder(path: Path, columns: Mapping[str, str]) -> DetectedFormat:
    if _find_file(path, "behaviors.tsv") is not None:
        return DetectedFormat("mind", "mind", _mind_files(path), parts=("",))
    if _find_file(path, "news.tsv") is not None:
        raise InputError(f"{path}: news.tsv without behaviors.tsv; a MIND folder has both.")
    folders = sorted(
        folder for folder in path.iterdir() if folder.is_dir() and _find_file(folder, "behaviors.tsv") is not None
    )
    if folders:
        by_split = {
            part: [f for f in folders if re.search(rf"(^|[^a-z]){part}$", f.name.lower())] for part in SPLIT_FOLDERS
        }
        strange = [f.name for f in folders if not any(f in found for found in by_split.values())]
        twice = [part for part, found in by_split.items() if len(found) > 1]
        if strange or twice:
            names = ", ".join(folder.name for folder in folders)
            raise InputError(f"{path}: MIND folders {names}; expected at most one each of train, dev and test.")
        files = [file for part in SPLIT_FOLDERS for folder in by_split[part] for file in _mind_files(folder)]
        return DetectedFormat(
            "mind", "mind", tuple(files), parts=tuple(part for part in SPLIT_FOLDERS if by_split[part])
        )
    ratings = [file for name in RATINGS if (file := _find_file(path, name)) is not None]
    files = ratings or [file for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
    if len(files) != 1:
        names = ", ".join(file.name for file in files[:8]) or "nothing"
        raise InputError(
            f"{path}: expected MIND, ratings.dat, ratings.csv or a single data file, found {names}. Pass the file."
        )
    return _detect_file(files[0], columns)


def _find_file(folder: Path, name: str) -> Path | None:
    found = [folder / (name + ending) for ending in COMPRESSED_ENDINGS if (folder / (name + ending)).is_file()]
    if len(found) > 1:
        raise InputError(f"{folder}: {' and '.join(file.name for file in found)}; expected one of them.")
    return found[0] if found else None


def _mind_files(folder: Path) -> tuple[Path, Path]:
    news, behaviors = _find_file(folder, "news.tsv"), _find_file(folder, "behaviors.tsv")
    if news is None or behaviors is None:
        raise InputError(f"{folder}: behaviors.tsv without news.tsv; a MIND folder has both.")
    return news, behaviors


def _detect_file(path: Path, columns: Mapping[str, str]) -> DetectedFormat:
    if first_bytes(path).startswith(PARQUET_MAGIC[:4]):
        names = _parquet_names(path)
        return DetectedFormat(_kind(path, names, columns), "parquet", (path,), names)
    undecodable = BadRows()
    head = [text for _, text in itertools.islice(read_lines(path, undecodable), 20) if text.strip()]
    if "\0" in "".join(head[:1]) or (undecodable.count and not head):
        raise InputError(f"{path}: not UTF-8 text. From another encoding: iconv -f UTF-16 -t UTF-8 {path.name} > NEW.")
    if not head:
        raise InputError(f"{path}: the file is empty.")
    first = head[0]
    if first.lstrip().startswith("{"):
        names = _json_names(path, head)
        kind = _kind(path, names, columns)
        if kind != "pairs":
            raise InputError(f"{path}: {kind} as JSON lines. Write them as CSV or Parquet; JSON lines hold text pairs.")
        return DetectedFormat(kind, "jsonl", (path,), names)
    if first.lstrip().startswith("["):
        raise InputError(
            f"{path}: begins like a JSON list, expected one object per line. Type: jq -c '.[]' {path.name} > NEW."
        )
    if re.fullmatch(r"\d+(::[^:]+){2,3}", first):
        return DetectedFormat("movielens", "dat", (path,))
    if re.fullmatch(r"\s*\d+[ \t]+\d+\s*", first):
        return DetectedFormat("sasrec", "spaces", (path,))
    if re.match(r"\d+\tU\d+\t", first) or re.match(r"N\d+\t", first):
        raise InputError(f"{path}: one file of MIND. Pass its folder, which has news.tsv and behaviors.tsv.")
    delimiter = max(",\t;", key=first.count)
    try:
        names = tuple(next(csv.reader([first], delimiter=delimiter)))
    except csv.Error as error:
        raise InputError(f"{path}, line 1: not a header ({error}). Lines end in LF or CR LF.") from error
    if [name.lower() for name in names[:3]] == ["userid", "movieid", "rating"]:
        return DetectedFormat("movielens", "csv", (path,), names, delimiter)
    return DetectedFormat(_kind(path, names, columns), "csv", (path,), names, delimiter)


def _parquet_names(path: Path) -> tuple[str, ...]:
    arrow = require("pyarrow", extra="train")
    try:
        return tuple(require("pyarrow.parquet", extra="train").read_schema(path).names)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({error}). Is the file complete?") from error


def _json_names(path: Path, head: Sequence[str]) -> tuple[str, ...]:
    for text in head:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            continue  # the reader will report it with its line number
        if isinstance(row, dict):
            return tuple(row)
    raise InputError(f"{path}: begins like JSON lines, but none of the first lines is a JSON object: {quote(head[0])}.")


def _kind(path: Path, names: tuple[str, ...], columns: Mapping[str, str]) -> str:
    kind = _kind_of_columns(names, columns)
    if kind is None:
        raise InputError(
            f"{path}: columns {quote(', '.join(names), 200)} are neither interactions (user, item, time, impression, "
            "label) nor text pairs (left, right, negatives; or query, pos, neg). "
            "Use such names in the header, or map them: --column user=NAME --column item=NAME, or "
            "--column left=NAME --column right=NAME."
        )
    return kind


def _kind_of_columns(names: Sequence[str], wanted: Mapping[str, str]) -> str | None:
    """'interactions' or 'pairs' if the columns have its required roles, else None."""
    for kind, needed in NEEDED.items():
        if all(role in wanted or matching_names(names, ROLES[kind][role]) for role in needed):
            return kind
    return None


@lru_cache(maxsize=1024)
def _normalize(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.lower())

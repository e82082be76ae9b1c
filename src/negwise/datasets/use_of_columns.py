"""Says what was done with each column and file of a data set, for `negwise data`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from negwise.datasets.file_rows import read_blocks
from negwise.datasets.formats import DetectedFormat
from negwise.datasets.positives import VALUE, Condition, numbers_of
from negwise.datasets.table_cache import open_tables
from negwise.datasets.table_columns import INTERACTIONS, RATINGS, SECOND_CHOICE, matching_names
from negwise.errors import require
from negwise.words import is_unbroken

FILES_SHOWN = 5
MISSING_VALUES = ("nan", "none", "null", "na", "n/a", "<na>")
"""Ids that are texts as any other, and are likely to be what a program wrote for nothing."""


@dataclass(frozen=True)
class Remark:
    """``about`` a column, a file or the ids: ``what`` was done with it."""

    about: str
    what: str


def describe_columns(
    detected: DetectedFormat, chosen: Mapping[str, str], positive: Condition | None, folder: Path
) -> list[Remark]:
    """Remarks on columns that have no role, on ratings, ids, texts and files. ``folder`` has the tables."""
    remarks = _of_files(detected.ignored)
    if detected.kind != "mind":
        unused = [name for name in detected.names if name not in chosen.values()]
        ratings = [] if positive is not None or "label" in chosen else matching_names(unused, RATINGS)
        remarks += [Remark(f"column {name}", _of_ratings(detected, name, chosen)) for name in ratings]
        remarks += [
            Remark(f"column {name}", _unused(name, chosen, detected.kind)) for name in unused if name not in ratings
        ]
    if positive is not None:
        remarks.append(Remark(f"column {chosen[VALUE]}", _of_condition(positive, folder)))
    if detected.kind in ("pairs", "mind"):
        return remarks + _of_texts(folder)
    return remarks + _of_ids(folder)


def _of_files(ignored: Sequence[tuple[str, str]]) -> list[Remark]:
    """Files that were not read, those together that have the same reason."""
    names: dict[str, list[str]] = {}
    for name, why in ignored:
        names.setdefault(why, []).append(name)
    return [Remark(_listed(those), f"not read: {why}") for why, those in names.items()]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - FILES_SHOWN:,} more" if len(names) > FILES_SHOWN else ""
    return f"file{'s' if len(names) > 1 else ''} {', '.join(names[:FILES_SHOWN])}{more}"


def _unused(name: str, chosen: Mapping[str, str], kind: str) -> str:
    if kind == "pairs":
        return "ignored: no role has this name"
    for role, names in SECOND_CHOICE.items():
        if matching_names([name], names):
            return (
                f"ignored: the {role} is in the column {chosen[role]}. To take this column, type --column {role}={name}"
            )
    if matching_names([name], INTERACTIONS["label"]):
        return "ignored: --positive makes the labels"
    if "time" not in chosen and any(word in name.lower() for word in ("time", "date", "day", "when")):
        return f"ignored: no role has this name. If it is the time, type --column time={name}"
    return "ignored: no role has this name"


def _of_ratings(detected: DetectedFormat, name: str, chosen: Mapping[str, str]) -> str:
    """How ratings were used, with their range in the first rows."""
    block = next(iter(read_blocks(detected, {**chosen, VALUE: name})), None)
    numbers = np.zeros(0) if block is None else numbers_of(block.columns[VALUE])
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or numbers.min() == numbers.max():
        return "ratings that are not used: every row is a positive"
    low, high = numbers.min(), numbers.max()
    middle = np.quantile(numbers, 0.5, method="higher")
    return (
        f"ratings from {low:g} to {high:g} that are not used: every row is a positive. "
        f'To count only high ones, type --positive "{name}>={middle:g}"'
    )


def _of_condition(positive: Condition, folder: Path) -> str:
    labels = open_tables(folder)["interactions"]["label"].to_numpy()
    count = int(labels.sum(dtype=np.int64))
    if count == len(labels):
        return f"every row has {positive}: all are positives, as without it. No row has the label 0"
    return f"{count:,} of {len(labels):,} rows have {positive} and are positives, all others have the label 0"


def _of_ids(folder: Path) -> list[Remark]:
    """Ids that look like missing values."""
    compute = require("pyarrow.compute", extra="train")
    tables, remarks = open_tables(folder), []
    for role, table in (("user", "users"), ("item", "items")):
        names = tables[table]["id"]
        found = compute.is_in(compute.utf8_lower(names), require("pyarrow", extra="train").array(MISSING_VALUES))
        strange = np.flatnonzero(found.to_numpy())
        if len(strange):
            rows = np.isin(tables["interactions"][role].to_numpy(), strange).sum()
            listed = ", ".join(repr(names[int(at)].as_py()) for at in strange)
            what = f"an id as any other, in {rows:,} rows. If it stands for a missing one, remove these rows"
            remarks.append(Remark(f"{role} {listed}", what))
    return remarks


def _of_texts(folder: Path) -> list[Remark]:
    """How texts were cut into words."""
    words = open_tables(folder)["words"]["id"].to_pylist()
    unbroken = sum(map(is_unbroken, words))
    what = "texts are cut into words: runs of letters and digits, in lower case"
    if unbroken:
        what += f". Texts without word breaks, as in Chinese, are cut into characters ({unbroken:,} different ones)"
    return [Remark("words", what)]

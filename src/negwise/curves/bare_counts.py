"""Columns of counts whose names have no split: ``queries`` and ``pairs`` alone.

Such a column may count what an evaluation rests on, or anything else, as the pairs seen in training so far. It is
taken for the first only if it fits: one whole number, the same at every evaluation of the curve.
"""

from __future__ import annotations

from collections.abc import Mapping

from negwise.curves.cells import as_count
from negwise.curves.log_files import LogTable, is_blank
from negwise.errors import quote

COUNTS = ("queries", "pairs")


def bare_counts(
    table: LogTable, columns: Mapping[str, str], matches: Mapping[tuple[str | None, str], list[str]]
) -> tuple[dict[tuple[str, str], list[str]], list[str]]:
    """(split, quantity) -> the columns without a split that fit the curve, and notes on those that fit no curve."""
    found: dict[tuple[str, str], list[str]] = {}
    notes = []
    curves = {split: columns[f"{split}_auc"] for split in ("train", "val") if f"{split}_auc" in columns}
    for quantity in COUNTS:
        for name in matches.get((None, quantity), []):
            fitting = [split for split, curve in curves.items() if _fits(table, curve, name)]
            for split in fitting:
                found.setdefault((split, quantity), []).append(name)
            if not fitting:
                notes.append(
                    f"Column {quote(name)} was not used: it is not one whole number, the same at every evaluation, so "
                    f"it does not count the {quantity} of an AUC."
                )
    return found, notes


def drop_useless_pairs(table: LogTable, columns: dict[str, str], curves: list[str], requested: set[str]) -> list[str]:
    """Take the role from columns of pairs that no standard error follows from. Returns the notes that say so.

    Standard errors are over queries: pairs alone say nothing, and fewer pairs than queries are pairs of something
    else. A column that was asked for keeps its role.
    """
    notes = []
    for split in curves:
        name, queries = columns.get(f"{split}_pairs"), columns.get(f"{split}_queries")
        if name is None or name in requested:
            continue
        if queries is None:
            why = f"standard errors are over queries, and the log has no count of them. Log {split}_queries too"
        elif _fewer(table, columns[f"{split}_auc"], name, queries):
            why = f"it has fewer pairs than {quote(queries)} has queries"
        else:
            continue
        del columns[f"{split}_pairs"]
        if f"{split}_se" not in columns:
            notes.append(f"Column {quote(name)} was not used: {why}.")
    return notes


def _fewer(table: LogTable, curve: str, pairs: str, queries: str) -> bool:
    """Whether column ``pairs`` has a smaller count than ``queries`` at an evaluation; broken counts are told later."""
    rows = [row.cells for row in table.rows if not is_blank(row.cells.get(curve))]
    counts = [(as_count(cells.get(pairs)), as_count(cells.get(queries))) for cells in rows]
    return any(few is not None and many is not None and few < many for few, many in counts)


def _fits(table: LogTable, curve: str, name: str) -> bool:
    """Whether column ``name`` has the same count wherever ``curve`` has a value."""
    cells = [row.cells.get(name) for row in table.rows if not is_blank(row.cells.get(curve))]
    counts = {None if is_blank(cell) else as_count(cell) for cell in cells}
    return len(counts) == 1 and None not in counts

"""The K that a run was trained with, as its log says: a column ``k``, or a setting of that name."""

from __future__ import annotations

from collections.abc import Mapping

from negwise.curves.cells import as_k
from negwise.curves.column_roles import ColumnRoles, quantity_of, words_of_column
from negwise.curves.log_files import LogTable, is_blank
from negwise.errors import InputError, quote

Range = tuple[float, float]


def k_of_table(table: LogTable, roles: ColumnRoles) -> Range | None:
    """The smallest and the largest K in the column of K, else what the log says beside its columns."""
    name = roles.columns.get("k")
    if name is None:
        return table.trained_k
    ks = []
    for row in table.rows:
        cell = row.cells.get(name)
        if is_blank(cell):
            continue
        k = as_k(cell)
        if k is None:
            raise InputError(
                f"{table.source}, {row.where}: {quote(cell)} in column {quote(name)} is not a K, which is a number, 0 "
                "or more."
            )
        ks.append(k)
    return min(ks), max(ks)


def k_of_settings(settings: Mapping[str, object]) -> Range | None:
    """K among the settings of a run, as a tracker keeps them: ``k``, ``num_negatives``."""
    for name, value in settings.items():
        k = as_k(value)
        if quantity_of(words_of_column(name)) == "k" and k is not None:
            return k, k
    return None

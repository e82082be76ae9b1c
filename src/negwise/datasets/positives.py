"""Which rows are positives, as people type it: ``rating>=4``, ``event=purchase``."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.row_blocks import Wrong, cell
from negwise.errors import InputError, quote, require

_FORM = re.compile(r"\s*([^<>=!]+?)\s*(>=|<=|==|!=|>|<|=)\s*(.+?)\s*")
_BY_NUMBER = {">=": np.greater_equal, "<=": np.less_equal, ">": np.greater, "<": np.less}
_EQUAL = {"=": np.equal, "==": np.equal, "!=": np.not_equal}


class Condition(NamedTuple):
    """Rows whose ``column`` compares so with ``value`` are positives."""

    column: str
    sign: str
    value: float | str

    def __str__(self) -> str:
        shown = f"{self.value:g}" if isinstance(self.value, float) else self.value
        return f"{self.column}{self.sign}{shown}"


def parse_condition(text: str) -> Condition:
    """``"rating >= 4"`` as ``Condition("rating", ">=", 4.0)``."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise InputError(f"positive: got {text!r}, expected a column, a sign and a value, as rating>=4 or event=buy.")
    column, sign, typed = match.groups()
    try:
        value: float | str = float(typed)
    except ValueError:
        value = typed
    if (isinstance(value, str) and sign in _BY_NUMBER) or value != value:
        raise InputError(f"positive: got {text!r}, expected a number after {sign}, as rating>=4.")
    return Condition(column, sign, value)


def holds(condition: Condition, column: Any, wrong: Wrong) -> NDArray[np.int8]:
    """(N,) 1 where the cell satisfies ``condition``, else 0. Cells that are no number get a message in ``wrong``."""
    if isinstance(condition.value, str):
        texts = np.array(["" if one is None else str(one).strip() for one in _values(column)], dtype=object)
        return np.asarray(_EQUAL[condition.sign](texts, condition.value)).astype(np.int8)
    numbers = numbers_of(column)
    for row in np.flatnonzero(np.isnan(numbers)).tolist():
        wrong.setdefault(row, f"{condition.column} {quote(cell(column, row))}, expected a number for {condition}")
    return np.asarray((_BY_NUMBER | _EQUAL)[condition.sign](numbers, condition.value)).astype(np.int8)


def numbers_of(column: Any) -> NDArray[np.float64]:
    """(N,) Cells as numbers, NaN for those that are none."""
    arrow = require("pyarrow", extra="train")
    if not isinstance(column, list):
        try:
            return column.cast(arrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            pass  # some cell is no number: find out which
    return np.array([_number(one) for one in _values(column)], np.float64)


def _values(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan

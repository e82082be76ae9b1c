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
SHOWN, LOOKED_AT = 5, 1000
"""Different cells in a message, and rows of a block in which they are looked for."""
_TRUTH = ("true", "false")
_EQUAL = {"=": np.equal, "==": np.equal, "!=": np.not_equal}

VALUE = "value"
"""The role of the column that decides which rows are positives."""


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
    """(N,) 1 where the cell satisfies ``condition``, else 0. Cells that are no number get a message in ``wrong``.

    A truth value is ``true`` or ``false``, however it is written: by Arrow, by pandas as ``True``, or in capitals.
    """
    if isinstance(condition.value, str):
        wanted, texts = condition.value, [_text(one) for one in _values(column)]
        if wanted.lower() in _TRUTH:
            wanted = wanted.lower()
            texts = [text.lower() if text.lower() in _TRUTH else text for text in texts]
        return np.asarray(_EQUAL[condition.sign](np.array(texts, dtype=object), wanted)).astype(np.int8)
    numbers = numbers_of(column)
    for row in np.flatnonzero(np.isnan(numbers)).tolist():
        wrong.setdefault(row, f"{condition.column} {quote(cell(column, row))}, expected a number for {condition}")
    return np.asarray((_BY_NUMBER | _EQUAL)[condition.sign](numbers, condition.value)).astype(np.int8)


class Matches:
    """Counts the rows with a condition, and remembers some cells for the message where there is none."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self._rows = self._positive = 0
        self._cells: dict[str, None] = {}

    def add(self, column: Any, labels: NDArray[np.int8]) -> None:
        """``labels`` of the good rows of a block whose cells are ``column``."""
        self._rows += len(labels)
        self._positive += int(labels.sum())
        if not self._positive and len(self._cells) < SHOWN:
            self._cells |= dict.fromkeys(map(_text, _values(column[:LOOKED_AT])))

    def check(self, name: str) -> None:
        """Raise if no row of the data ``name`` has the condition: then nothing could be learnt."""
        if self._positive or not self._rows:
            return
        column, cells = self._condition.column, [*self._cells][:SHOWN]
        raise InputError(
            f"{name}: positive={self._condition}, and none of {self._rows:,} rows has that. {column} has "
            f"{', '.join(map(quote, cells))}. Type --positive with one of them, as '{column}={cells[0]}'."
        )


def numbers_of(column: Any) -> NDArray[np.float64]:
    """(N,) Cells as numbers, NaN for those that are none."""
    arrow = require("pyarrow", extra="train")
    if not isinstance(column, list):
        if arrow.types.is_dictionary(column.type):
            found = np.append(numbers_of(column.dictionary), np.nan)
            return found[column.indices.cast(arrow.int64()).fill_null(-1).to_numpy(zero_copy_only=False)]
        try:
            return column.cast(arrow.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
        except (arrow.ArrowInvalid, arrow.ArrowNotImplementedError):
            pass  # some cell is no number: find out which
    return np.array([_number(one) for one in _values(column)], np.float64)


def _values(column: Any) -> list[Any]:
    return column if isinstance(column, list) else column.to_pylist()


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return np.nan

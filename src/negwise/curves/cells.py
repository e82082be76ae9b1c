"""Cells of a log as numbers."""

from __future__ import annotations

import math

from negwise.curves.log_files import MAX_EXACT_COUNT


def finite_float(cell: object) -> float | None:
    """``cell`` as a float; None for text that is not a number, NaN and infinity."""
    if isinstance(cell, bool) or not isinstance(cell, str | int | float):
        return None
    if isinstance(cell, str) and "_" in cell:
        return None  # float() would read "0_5" as 5
    try:
        value = float(cell)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def as_count(cell: object) -> int | None:
    """``cell`` as a whole number from 1 to `MAX_EXACT_COUNT`; None if it is none."""
    value = finite_float(cell)
    return int(value) if value is not None and value == int(value) and 1 <= value <= MAX_EXACT_COUNT else None


def as_k(cell: object) -> float | None:
    """``cell`` as a number of negatives, from 0 to `MAX_EXACT_COUNT`; None if it is none."""
    value = finite_float(cell)
    return value if value is not None and 0 <= value <= MAX_EXACT_COUNT else None

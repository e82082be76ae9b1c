"""A real-valued K, rounded to a whole number of negatives for each row (eq. 8)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from negwise.draws.random_words import Key, Stream, block, describe
from negwise.errors import InputError

MAX_K = 2**31


def counts(k: float, rows: int, key: Key) -> Any:
    """Number of negatives of each row (eq. 8): ``floor(k)``, or with probability ``k - floor(k)`` one more.

    A row's count is a function of (seed, step, row). 53 random bits are compared with the fraction of ``k``.
    So the mean is exactly ``k`` for each ``k >= 1`` that a double can hold, and within 2^-53 of it below 1.
    Returns int64 (rows,): a tensor on the device of ``key.row`` if that is a tensor, else a NumPy array.

    >>> counts(2.5, 8, Key(seed=0, step=0)).tolist()
    [3, 3, 3, 2, 3, 3, 3, 3]
    """
    if rows < 0:
        raise InputError(f"counts: rows={rows}, expected the number of rows, 0 or more")
    whole = math.floor(check_k(k))
    threshold = math.ceil(math.ldexp(k - whole, 53))
    numbers = key.rows(rows)
    if threshold == 0:
        return numbers * 0 + whole
    first, second, *_ = block(key, numbers, numbers * 0, Stream.COUNT)
    return whole + (((first << 21) | (second >> 11)) < threshold) * 1


def max_count(k: float) -> int:
    """The largest count that ``k`` can give, ``ceil(k)``. A batch is that wide, so its shape is not random."""
    return math.ceil(check_k(k))


def check_k(k: float) -> float:
    """``k`` itself, or an `InputError` if it is not a number from 0 to 2**31 (NaN is not)."""
    if isinstance(k, bool) or not isinstance(k, int | float | np.integer | np.floating):
        raise InputError(f"k is {describe(k)}, expected a number such as 4 or 2.5")
    if not 0 <= k <= MAX_K:
        raise InputError(f"k={k}, expected 0 <= k <= 2**31")
    return k

"""Who is held out: by time, by user, or at random by groups that belong together. Nothing falls back silently."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.data.moments import DAY, day_of
from negwise.data.ragged import Ints
from negwise.errors import InputError

TRAIN, VAL, TEST = 0, 1, 2
FEWEST = 3
"""Users or groups that can be split: one for each of training, validation and test."""

Parts = NDArray[np.int8]
"""TRAIN, VAL or TEST for each row."""


@dataclass(frozen=True)
class Shares:
    """How much is held out: of the users or groups, or, by time, in days."""

    val: float = 0.1
    test: float = 0.1
    val_days: int = 1
    test_days: int = 7

    def __post_init__(self) -> None:
        if not (self.val > 0 and self.test > 0 and self.val + self.test < 1):
            raise InputError(f"val={self.val}, test={self.test}: expected shares above 0 that leave some for training")
        if self.val_days < 1 or self.test_days < 1:
            raise InputError(f"val_days={self.val_days}, test_days={self.test_days}: expected 1 or more")


def by_time(times: Ints, shares: Shares, path: str) -> Parts:
    """The last ``test_days`` days are test, the ``val_days`` before them validation (whole days, UTC)."""
    day = times // DAY
    first, last = int(day.min()), int(day.max())
    held = shares.test_days + shares.val_days
    if not long_enough(times, shares):
        span = f"{last - first + 1} days, {day_of(first * DAY)} to {day_of(last * DAY)}"
        raise InputError(
            f"{path}: {span}; split='time' with {shares.test_days} days of test and {shares.val_days} of validation "
            f"needs {held + 1} or more. Type --split user, or hold out fewer days (in Python: test_days=1)."
        )
    return np.where(day > last - shares.test_days, TEST, np.where(day > last - held, VAL, TRAIN)).astype(np.int8)


def long_enough(times: Ints, shares: Shares) -> bool:
    """Whether a day is left for training once the last ones are held out."""
    return len(times) > 0 and int(times.max() // DAY - times.min() // DAY) >= shares.test_days + shares.val_days


def at_random(n: int, shares: Shares, seed: int, what: str) -> Parts:
    """``n`` users or groups (``what`` says which), a share of them held out; a function of ``n`` and ``seed``."""
    if n < FEWEST:
        raise InputError(f"{what}; training, validation and test need {FEWEST} or more.")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    n_test, n_val = max(1, round(n * shares.test)), max(1, round(n * shares.val))
    parts = np.full(n, TRAIN, np.int8)
    parts[order[:n_test]] = TEST
    parts[order[n_test : n_test + n_val]] = VAL
    return parts


def check_choice(split: str, choices: tuple[str, ...], path: str) -> str:
    if split not in choices:
        raise InputError(f"{path}: split={split!r}; this data can be split by {', '.join(choices)}.")
    return split

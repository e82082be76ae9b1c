"""Splits into training, validation and test by time, by user or by random groups. There is no silent fallback."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints
from negwise.datasets.timestamps import DAY_MS, format_day
from negwise.errors import InputError

TRAIN, VAL, TEST = 0, 1, 2
MIN_GROUPS = 3
"""Fewest users or groups that can be split: one for each of training, validation and test."""

RANDOM_SPLITS = ("user", "random")
"""Splits that assign users or groups at random, and so can have folds."""

SplitLabels = NDArray[np.int8]
"""TRAIN, VAL or TEST of each row."""


@dataclass(frozen=True)
class SplitSizes:
    """Sizes of validation and test: shares of the users or groups, or days for a split by time.

    With ``folds``, users or groups are divided into that many parts, and part ``fold`` is the test split. Over all
    folds, each user or group is tested once.
    """

    val: float = 0.1
    test: float = 0.1
    val_days: int = 1
    test_days: int = 7
    folds: int | None = None
    fold: int = 0

    def __post_init__(self) -> None:
        if not (self.val > 0 and self.test > 0 and self.val + self.test < 1):
            raise InputError(f"val={self.val}, test={self.test}: expected shares above 0 with a sum below 1")
        if self.val_days < 1 or self.test_days < 1:
            raise InputError(f"val_days={self.val_days}, test_days={self.test_days}: expected 1 or more")
        if self.folds is not None and not (self.folds >= 2 and 0 <= self.fold < self.folds):
            raise InputError(f"folds={self.folds}, fold={self.fold}: expected 2 or more folds, counted from 0")
        if self.folds is not None and self.val + 1 / self.folds >= 1:
            raise InputError(f"folds={self.folds}, val={self.val}: nothing is left for training")


def split_by_time(times: Ints, shares: SplitSizes, path: str) -> SplitLabels:
    """The last ``test_days`` days are test, the ``val_days`` days before them validation (whole days, UTC)."""
    day = times // DAY_MS
    last = int(day.max())
    held = shares.test_days + shares.val_days
    if not has_enough_days(times, shares):
        raise InputError(
            f"{path}: {span_in_words(times)}; split='time' with {shares.test_days} days of test and {shares.val_days} "
            f"of validation needs {held + 1} or more. Type --split user, or hold out fewer days (in Python: "
            "test_days=1)."
        )
    labels = np.full(len(day), TRAIN, np.int8)
    labels[day > last - held] = VAL
    labels[day > last - shares.test_days] = TEST
    return labels


def span_in_words(times: Ints) -> str:
    """``6 days, 2019-11-09 to 2019-11-14``."""
    first, last = int(times.min()), int(times.max())
    return f"{last // DAY_MS - first // DAY_MS + 1} days, {format_day(first)} to {format_day(last)}"


def has_enough_days(times: Ints, shares: SplitSizes) -> bool:
    """Whether at least one day remains for training."""
    return len(times) > 0 and int(times.max() // DAY_MS - times.min() // DAY_MS) >= shares.test_days + shares.val_days


def split_at_random(n: int, shares: SplitSizes, seed: int, what: str) -> SplitLabels:
    """Splits ``n`` users or groups at random, as a function of ``n`` and ``seed``; ``what`` names them in errors."""
    if n < MIN_GROUPS:
        raise InputError(f"{what}; training, validation and test need {MIN_GROUPS} or more.")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(n)
    n_test, n_val = max(1, round(n * shares.test)), max(1, round(n * shares.val))
    if shares.folds is not None:
        if n < MIN_GROUPS * shares.folds:
            raise InputError(f"{what}; {shares.folds} folds need {MIN_GROUPS * shares.folds} or more.")
        bounds = np.linspace(0, n, shares.folds + 1).round().astype(np.int64)
        first, last = bounds[shares.fold : shares.fold + 2]
        order, n_test = np.roll(order, -first), int(last - first)
    labels = np.full(n, TRAIN, np.int8)
    labels[order[:n_test]] = TEST
    labels[order[n_test : n_test + n_val]] = VAL
    return labels


def check_split_name(split: str, choices: tuple[str, ...], path: str, shares: SplitSizes) -> str:
    if split not in choices:
        raise InputError(f"{path}: split={split!r}, expected one of {', '.join(choices)}.")
    if shares.folds is not None and split not in RANDOM_SPLITS:
        able = " or ".join(f"--split {name}" for name in choices if name in RANDOM_SPLITS)
        raise InputError(f"{path}: split={split!r} has no folds. Type {able}.")
    return split

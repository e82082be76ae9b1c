"""Distributions over a catalogue, in integers: id i has ``mass(i)`` of ``total`` units, and a draw is exact.

Integer units make "the probability actually drawn from" a number that can be stated, tested, and subtracted
from when ids are excluded, instead of something that is right up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.errors import InputError
from negwise.samplers.words import scale

UNIT = 2**32
"""Units in one column of an alias table."""

MAX_ITEMS = 2**30
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Flat:
    """Every id has one unit of ``n_items``."""

    n_items: int
    device: torch.device = CPU

    @property
    def total(self) -> int:
        return self.n_items

    def to(self, device: torch.device) -> Flat:
        return Flat(self.n_items, device)

    def draw(self, hi: Tensor, lo: Tensor) -> Tensor:
        """The id for each 64-bit word ``(hi, lo)``."""
        return scale(hi, lo, self.n_items)

    def mass(self, ids: Tensor) -> Tensor:
        return torch.ones_like(ids)

    def log_mass(self, ids: Tensor) -> Tensor:
        """Natural logarithm, float64, to broadcast; 0 for an id without mass, which is never drawn."""
        return torch.zeros((), dtype=torch.float64, device=ids.device)

    def before(self, ids: Tensor) -> Tensor:
        """Mass of all ids below each of ``ids``."""
        return ids


@dataclass(frozen=True, eq=False)
class Alias:
    """Walker's alias method on 2^b columns of `UNIT` units each: one look-up and one comparison a draw.

    The upper b bits of a word choose the column c, its lower 32 bits are the coin: below ``threshold[c]`` the
    draw is c, else ``alias[c]``. Columns from ``n_items`` on have threshold 0.
    """

    threshold: Tensor  # (2^b,) int64, 0..2^32 - 1
    alias: Tensor  # (2^b,) int64
    masses: Tensor  # (n_items,) int64
    starts: Tensor  # (n_items + 1,) int64, mass before each id
    log_masses: Tensor  # (n_items,) float64

    @classmethod
    def of(cls, weights: Tensor) -> Alias:
        """The table whose masses are ``weights`` rounded to ``total`` units (at least 1 where positive)."""
        values = weights.double().cpu().numpy()
        if values.ndim != 1 or not 0 < len(values) <= MAX_ITEMS:
            raise InputError(f"weights have shape {values.shape}, expected (n_items,) with 1..2**30 items")
        if not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
            raise InputError("weights must be finite and >= 0, and one of them must be positive")
        columns = 1 << max(len(values) - 1, 0).bit_length()
        masses = apportion(values, columns * UNIT)
        threshold, alias = fill_columns(masses, columns)
        starts = np.concatenate(([0], masses.cumsum()))
        logs = np.log(np.maximum(masses, 1))
        return cls(*(torch.from_numpy(table) for table in (threshold, alias, masses, starts, logs)))

    @property
    def n_items(self) -> int:
        return len(self.masses)

    @property
    def total(self) -> int:
        return len(self.alias) * UNIT

    @property
    def shift(self) -> int:
        """How far to shift a 32-bit word so that b bits are left."""
        return 33 - len(self.alias).bit_length()

    @property
    def device(self) -> torch.device:
        return self.masses.device

    def to(self, device: torch.device) -> Alias:
        tables = self.threshold, self.alias, self.masses, self.starts, self.log_masses
        return Alias(*(table.to(device) for table in tables))

    def draw(self, hi: Tensor, lo: Tensor) -> Tensor:
        column = hi >> self.shift
        return torch.where(lo < self.threshold[column], column, self.alias[column])

    def mass(self, ids: Tensor) -> Tensor:
        return self.masses[ids]

    def log_mass(self, ids: Tensor) -> Tensor:
        return self.log_masses[ids]

    def before(self, ids: Tensor) -> Tensor:
        return self.starts[ids]


Law = Flat | Alias


def apportion(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """``total`` units in proportion to ``weights``: rounded down, at least 1 where the weight is positive.

    What is left over goes to the largest fractions, one unit each (Hamilton's method); what was given too
    much, for the sake of the smallest ids, is taken from the largest id.
    """
    exact = weights / weights.sum() * total
    masses = np.where(weights > 0, np.maximum(np.floor(exact), 1), 0).astype(np.int64)
    left = total - int(masses.sum())
    if 0 < left <= np.count_nonzero(weights):
        masses[np.argsort(np.where(weights > 0, masses - exact, np.inf), kind="stable")[:left]] += 1
    else:
        masses[masses.argmax()] += left
    return masses


def fill_columns(masses: NDArray[np.int64], columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Vose's construction in integers: ``threshold`` and ``alias`` of columns that hold `UNIT` units each."""
    rest = [*masses.tolist(), *[0] * (columns - len(masses))]
    # A column that is all its own keeps threshold 0 and itself as alias, so that thresholds fit 32 bits.
    threshold, alias = [0] * columns, list(range(columns))
    small = [column for column, mass in enumerate(rest) if mass < UNIT]
    large = [column for column, mass in enumerate(rest) if mass >= UNIT]
    while small:
        needy, giver = small.pop(), large[-1]
        threshold[needy], alias[needy] = rest[needy], giver
        rest[giver] -= UNIT - rest[needy]
        if rest[giver] < UNIT:
            small.append(large.pop())
    return np.array(threshold, dtype=np.int64), np.array(alias, dtype=np.int64)

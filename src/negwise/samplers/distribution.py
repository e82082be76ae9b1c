"""Distributions over a catalogue, and draws from them with replacement and with exclusions.

Probabilities are integers: id i has ``mass(i)`` of ``total`` units. So the probability of a draw is exact, not a number
that is right up to rounding: it can be stated, tested, and reduced when ids are excluded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.draws import Key, Stream, block
from negwise.errors import InputError
from negwise.samplers.draw_request import MAX_REDRAWS, prefix_mask, scale_words, slot_words
from negwise.samplers.exclusions import Exclusions

UNIT = 2**32
"""Units in one column of an alias table."""

MAX_ITEMS = 2**30
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class UniformDistribution:
    """Every id has 1 of ``n_items`` units."""

    n_items: int
    device: torch.device = CPU

    @property
    def total(self) -> int:
        return self.n_items

    def to(self, device: torch.device) -> UniformDistribution:
        return UniformDistribution(self.n_items, device)

    def draw(self, hi: Tensor, lo: Tensor) -> Tensor:
        """The id for each 64-bit random word ``(hi, lo)``."""
        return scale_words(hi, lo, self.n_items)

    def mass(self, ids: Tensor) -> Tensor:
        return torch.ones_like(ids)

    def log_mass(self, ids: Tensor) -> Tensor:
        """Natural log of the mass, float64, to broadcast. It is 0 for an id without mass, which is never drawn."""
        return torch.zeros((), dtype=torch.float64, device=ids.device)

    def before(self, ids: Tensor) -> Tensor:
        """The mass of all ids below each of ``ids``."""
        return ids


@dataclass(frozen=True, eq=False)
class AliasTable:
    """Walker's alias method on 2^b columns of `UNIT` units each: one lookup and one comparison per draw.

    The upper b bits of a random word choose column c. If its lower 32 bits are below ``threshold[c]``, the draw is c,
    else ``alias[c]``. Columns from ``n_items`` on have threshold 0.
    """

    threshold: Tensor  # (2^b,) int64, 0..2^32 - 1
    alias: Tensor  # (2^b,) int64
    masses: Tensor  # (n_items,) int64
    starts: Tensor  # (n_items + 1,) int64, mass before each id
    log_masses: Tensor  # (n_items,) float64

    @classmethod
    def of(cls, weights: Tensor) -> AliasTable:
        """The table for ``weights`` (n_items,), rounded to ``total`` units. A positive weight gets at least 1 unit."""
        values = weights.double().cpu().numpy()
        if values.ndim != 1 or not 0 < len(values) <= MAX_ITEMS:
            raise InputError(f"weights have shape {values.shape}, expected (n_items,) with 1..2**30 items")
        if not np.isfinite(values).all() or (values < 0).any() or values.sum() == 0:
            raise InputError(
                "weights are negative, not finite or all 0, expected finite numbers >= 0, one of them positive"
            )
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
        """How far to shift a 32-bit word so that its upper b bits are left."""
        return 33 - len(self.alias).bit_length()

    @property
    def device(self) -> torch.device:
        return self.masses.device

    def to(self, device: torch.device) -> AliasTable:
        tables = self.threshold, self.alias, self.masses, self.starts, self.log_masses
        return AliasTable(*(table.to(device) for table in tables))

    def draw(self, hi: Tensor, lo: Tensor) -> Tensor:
        column = hi >> self.shift
        return torch.where(lo < self.threshold[column], column, self.alias[column])

    def mass(self, ids: Tensor) -> Tensor:
        return self.masses[ids]

    def log_mass(self, ids: Tensor) -> Tensor:
        return self.log_masses[ids]

    def before(self, ids: Tensor) -> Tensor:
        return self.starts[ids]


Distribution = UniformDistribution | AliasTable


@dataclass(frozen=True, eq=False)
class CatalogueRows:
    """The rows of a batch, (B,) each: positive, owner, and the mass that the row may draw."""

    positive: Tensor
    owner: Tensor
    allowed: Tensor

    def __getitem__(self, index: Tensor) -> CatalogueRows:
        return CatalogueRows(self.positive[index], self.owner[index], self.allowed[index])


@dataclass(frozen=True, eq=False)
class CatalogueSampling:
    """Draws with replacement from a distribution, without the row's positive and the ids that its owner knows.

    Rejection sampling with a bound: a slot whose id is excluded draws again, at most `MAX_REDRAWS` times two. Then it
    takes a random unit of the allowed mass, found by bisection, which cannot fail. Each way gives the distribution
    renormalised over the allowed ids, so their combination does too. The work is bounded whatever share is excluded.
    This is the plain torch version; `negwise.samplers.compiled_draws` has the same draws as numba loops.
    Shapes: B rows, K slots, R slots to redraw.
    """

    distribution: Distribution
    exclusions: Exclusions
    excluded_mass: Tensor  # (N + 1,) cumulative mass of the known ids
    remaining_mass: Tensor  # (U,) mass that each owner does not know

    @classmethod
    def of(cls, distribution: Distribution, exclusions: Exclusions) -> CatalogueSampling:
        distribution = distribution.to(exclusions.device)
        mass = distribution.mass(exclusions.ids)
        # The sum over all owners may wrap around int64. Only differences are used, and those are right.
        excluded_mass = torch.cat((mass.new_zeros(1), mass.cumsum(0)))
        return cls(
            distribution, exclusions, excluded_mass, distribution.total - excluded_mass[exclusions.offsets].diff()
        )

    @property
    def device(self) -> torch.device:
        return self.excluded_mass.device

    def to(self, device: torch.device) -> CatalogueSampling:
        tables = (table.to(device) for table in (self.excluded_mass, self.remaining_mass))
        return CatalogueSampling(self.distribution.to(device), self.exclusions.to(device), *tables)

    def rows(self, positive: Tensor, owner: Tensor) -> CatalogueRows:
        """The rows. ``allowed`` is the total mass less the owner's known ids and the positive, counted once."""
        return CatalogueRows(positive, owner, self.remaining_mass[owner] - self.positive_mass(owner, positive))

    def positive_mass(self, owner: Tensor, positive: Tensor) -> Tensor:
        """The mass of each positive (B,), or 0 if its owner knows it already."""
        return torch.where(self.exclusions.contains(owner, positive), 0, self.distribution.mass(positive))

    def is_excluded(self, rows: CatalogueRows, ids: Tensor) -> Tensor:
        """Whether the row must not draw ``ids`` (B, K)."""
        return (ids == rows.positive[:, None]) | self.exclusions.contains(rows.owner[:, None], ids)

    def log_q(self, rows: CatalogueRows, ids: Tensor) -> Tensor:
        """``log(mass / allowed)`` (B, K) of drawn ids, rounded once, to float32."""
        log_q = self.distribution.log_mass(ids) - rows.allowed.clamp(min=1).double().log()[:, None]
        return log_q.float().expand(ids.shape)

    def log_prob(self, rows: CatalogueRows, ids: Tensor) -> Tensor:
        """`log_q` of any ids: -inf for those that cannot be drawn."""
        never = self.is_excluded(rows, ids) | (self.distribution.mass(ids) == 0)
        return self.log_q(rows, ids).masked_fill(never, -torch.inf)

    def draw(self, rows: CatalogueRows, filled: Tensor, width: int, key: Key, stream: Stream) -> Tensor:
        """Ids (B, width): ``filled[b]`` of them in row b, then zeros. ``key.row`` is a tensor."""
        ids, mask = self.distribution.draw(*slot_words(key, width, stream)), prefix_mask(filled, width)
        where, slot = (self.is_excluded(rows, ids) & mask).nonzero(as_tuple=True)
        numbers = key.rows(len(ids))
        for redraw in range(1, MAX_REDRAWS + 1):
            if len(where) == 0:
                break
            w0, w1, w2, w3 = block(key, numbers[where], slot, stream, redraw)
            tries = torch.stack((self.distribution.draw(w0, w1), self.distribution.draw(w2, w3)), 1)
            bad = self.is_excluded(rows[where], tries)
            ids[where, slot] = torch.where(bad[:, 0], tries[:, 1], tries[:, 0])
            again = bad.all(1)
            where, slot = where[again], slot[again]
        w0, w1, *_ = block(key, numbers[where], slot, stream, MAX_REDRAWS + 1)
        ids[where, slot] = self.bisect(rows[where], scale_words(w0, w1, rows.allowed[where]))
        return ids * mask

    def bisect(self, rows: CatalogueRows, unit: Tensor) -> Tensor:
        """The id (R,) that holds unit number ``unit`` (R,) of each row's allowed mass.

        It is the largest id with at most ``unit`` of allowed mass before it. An id without allowed mass is skipped,
        because the next id has the same mass before it.
        """
        low, high = torch.zeros_like(unit), torch.full_like(unit, self.distribution.n_items - 1)
        positive_mass = self.positive_mass(rows.owner, rows.positive)
        start = self.excluded_mass[self.exclusions.offsets[rows.owner]]
        for _ in range((self.distribution.n_items - 1).bit_length()):
            middle = (low + high + 1) >> 1
            excluded = self.excluded_mass[self.exclusions.before(rows.owner, middle)] - start
            before = self.distribution.before(middle) - excluded - positive_mass * (rows.positive < middle)
            low = torch.where(before <= unit, middle, low)
            high = torch.where(before <= unit, high, middle - 1)
        return low


def pack_columns(distribution: AliasTable) -> Tensor:
    """The threshold and alias of each column in one word, so that a draw reads once."""
    return distribution.threshold << 32 | distribution.alias


def apportion(weights: NDArray[np.float64], total: int) -> NDArray[np.int64]:
    """``total`` units in proportion to ``weights``: rounded down, but at least 1 for a positive weight.

    Units that are left over go to the largest fractions, one each (Hamilton's method). If the smallest ids got too
    many units, the largest id pays for them.
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
    """``threshold`` and ``alias`` of columns of `UNIT` units each, by Vose's construction in integers."""
    rest = [*masses.tolist(), *[0] * (columns - len(masses))]
    # A column that holds one id only has threshold 0 and that id as alias, so that thresholds fit 32 bits.
    threshold, alias = [0] * columns, list(range(columns))
    small = [column for column, mass in enumerate(rest) if mass < UNIT]
    large = [column for column, mass in enumerate(rest) if mass >= UNIT]
    while small:
        light, heavy = small.pop(), large[-1]
        threshold[light], alias[light] = rest[light], heavy
        rest[heavy] -= UNIT - rest[light]
        if rest[heavy] < UNIT:
            small.append(large.pop())
    return np.array(threshold, dtype=np.int64), np.array(alias, dtype=np.int64)

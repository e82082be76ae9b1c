"""Which examples a step sees, and which of them are this process's.

Everything here is a function of (seed, step), so that a run can be taken up at any step: the order of an epoch from
(seed, epoch), the rows of the global batch from the order, a rank's rows from the global batch. B rows, P queries.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Query

Ints = NDArray[np.int64]
MaskItems = Callable[[Query, Key], tuple[Query, Tensor]]
"""Makes a cloze of sequences: the query with P of its items hidden (``positions``), and those items (P,)."""


class Examples(Protocol):
    """Examples by number: ``batch(indices)`` gives the queries, positives (B,) and groups (B,), all int64."""

    def __len__(self) -> int: ...

    def batch(self, indices: Ints, /) -> tuple[Query, Tensor, Tensor]: ...


@dataclass(frozen=True)
class EpochOrder:
    """Every example once an epoch, in a new order each time, ``batch_size`` at a step; an epoch's last may be fewer."""

    examples: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.examples < 1 or self.batch_size < 1:
            raise InputError(f"{self.examples} examples in batches of {self.batch_size}; expected 1 or more of each")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch_size)

    def batch(self, step: int) -> Ints:
        """The examples of the global batch of ``step``."""
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        return _permutation(self.examples, self.seed, epoch)[start : start + self.batch_size]


@lru_cache(maxsize=2)
def _permutation(n: int, seed: int, epoch: int) -> Ints:
    return np.random.default_rng([seed, epoch]).permutation(n)


@dataclass(frozen=True, eq=False)
class Batch:
    """A rank's queries: ``positives``, ``groups`` and ``numbers``, those of its rows, are (P,) int64.

    ``counted`` is how many of them count: all, or none.
    """

    query: Query
    positives: Tensor
    groups: Tensor
    numbers: Tensor
    counted: int


def share(rows: int, rank: int, world: int) -> slice:
    """Which of ``rows`` are those of ``rank`` among ``world``: a run of them, as long as another's or one shorter."""
    return slice(rows * rank // world, rows * (rank + 1) // world)


def fetch(examples: Examples, rows: Ints, mine: slice, key: Key, mask_items: MaskItems | None) -> Batch:
    """This rank's part of the global batch of examples ``rows``, at the step that ``key`` names, on the CPU.

    A rank without rows works on the first one, which does not count, so that all take part in every step. A query
    read off place h of row b of sequences of H places has number b * H + h.
    """
    counts = mine.stop > mine.start
    taken = mine if counts else slice(0, 1)
    query, positives, groups = examples.batch(rows[taken])
    numbers = torch.arange(taken.start, taken.stop)
    if mask_items is not None:
        query, positives = mask_items(query, Key(key.seed, key.step, numbers))
        assert query.positions is not None
        row, place = query.positions.unbind(1)
        numbers, groups = numbers[row] * query.items.shape[1] + place, groups[row]
    return Batch(query, positives, groups, numbers, len(positives) if counts else 0)

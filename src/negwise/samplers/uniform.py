"""Uniform over the catalogue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key
from negwise.protocols import Draw, Negatives
from negwise.samplers.engine import Engine, Impl, check_items, which
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.law import Flat
from negwise.samplers.shortage import OnShortage


@dataclass(frozen=True, eq=False)
class Uniform:
    """Ids 0..n_items - 1 alike, with replacement, without the positive and what its owner knows.

    ``log_q = -log(ids that are left)``. Only a row with none left is short.

    >>> uniform = Uniform(5)
    >>> negatives = uniform(torch.tensor([0, 3]), k=2, key=Key(seed=1, step=0))
    >>> negatives.ids.shape, bool((negatives.ids == torch.tensor([[0], [3]])).any())
    (torch.Size([2, 2]), False)
    """

    n_items: int
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        _ = self.engine

    @cached_property
    def engine(self) -> Engine:
        return Engine(Flat(check_items(self.n_items)), self.exclude, self.on_shortage, self.impl)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        return self.engine.plan(positives, k, key, owner).negatives()

    def plan(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Draw:
        """The same draw, not drawn yet: for a loss that draws where it looks up, ``info_nce(..., ids=draw)``."""
        return self.engine.plan(positives, k, key, owner)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``; -inf for what is excluded."""
        return self.engine.log_prob(ids, positives, owner)

    def which(self, device: torch.device | str = "cpu") -> str:
        """The implementation that draws on ``device``: "numba" or "torch"."""
        return which(self.impl, torch.device(device))

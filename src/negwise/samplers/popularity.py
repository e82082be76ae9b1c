"""Popularity to a power: how often an id was seen, made flatter or steeper."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Draw, Negatives
from negwise.samplers.engine import Engine, Impl, which
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.law import Alias
from negwise.samplers.shortage import OnShortage


@dataclass(frozen=True, eq=False)
class Popularity:
    """``q(i)`` proportional to ``counts[i] ** alpha``, with replacement, without what a row must not draw.

    Drawn by the alias method; ``q`` is rounded to units of 2^-32 over the number of columns, and ``log_q`` is
    the logarithm of the rounded ``q``, renormalised over what is left. An id never seen is never drawn (for
    alpha > 0), so a row is short where all that is left was never seen.

    How to choose alpha: 1 is popularity as it is, 0.75 word2vec's, 0 uniform. A loss that does not correct
    for ``log_q`` may leave it out, ``log_q=False``.
    """

    counts: Tensor
    alpha: float = 1.0
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"
    log_q: bool = True

    def __post_init__(self) -> None:
        if not math.isfinite(self.alpha) or self.alpha < 0:
            raise InputError(f"alpha={self.alpha}, expected a finite number >= 0, such as 0.75")
        came: object = self.counts  # callers without types pass lists
        if not isinstance(came, Tensor):
            raise InputError(
                f"Popularity: counts is a {type(came).__name__}; expected a torch tensor: torch.tensor(counts)"
            )
        counts = self.counts.double()
        if not bool(counts.isfinite().all()) or bool((counts < 0).any()):
            raise InputError(
                "Popularity: counts hold negative or non-finite numbers, expected how often each id was seen"
            )
        _ = self.engine

    @cached_property
    def engine(self) -> Engine:
        weights = self.counts.double() ** self.alpha
        return Engine(Alias.of(weights), self.exclude, self.on_shortage, self.impl, self.log_q)

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

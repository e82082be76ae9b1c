"""A pool of candidates that all rows of a step share: many negatives, few encodings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.draws import Key
from negwise.protocols import Negatives, Sampler
from negwise.samplers.draw_request import DrawRequest, OnShortage, check_on_shortage
from negwise.samplers.lists import check_positive_int
from negwise.samplers.uniform_popularity import Popularity, Uniform
from negwise.samplers.without_replacement import SharedCandidates


@dataclass(frozen=True, eq=False)
class Pool:
    """``size`` candidates per step from ``source``. Each row takes K of those that it may draw.

    The candidates depend on (seed, step) only, so every rank has the same. At most ``size`` distinct ids have to be
    encoded, whatever B and K are: ``pool`` holds them, and ``index`` (B, K) points into it. A row draws candidates
    without replacement. An id that is in the pool twice may come twice.

    The candidates are independent draws from ``source``. So each slot by itself follows ``source``, renormalised over
    the ids that the row may draw, and ``log_q`` and ``removed`` are those of ``source``. There is no ``log_q`` if
    ``source`` gives none.
    """

    source: Uniform | Popularity
    size: int
    on_shortage: OnShortage = "mask"

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)
        check_positive_int("Pool: size", self.size)

    @property
    def parts(self) -> tuple[Sampler, ...]:
        """The samplers it is made of."""
        return (self.source,)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        sampling, rows = self.source.sampler.rows(request.positives, owner)
        drawn = self.source.sampler.draw_pool(self.size, key, positives.device)
        candidates = SharedCandidates(drawn, ~sampling.is_excluded(rows, drawn[None, :]))
        place, mask = candidates.draw(request, self.on_shortage, self.source.impl)
        ids = drawn[place] * mask
        pool, inverse = torch.unique(drawn, return_inverse=True)
        removed = 1 - rows.allowed.double() / sampling.distribution.total
        log_q = sampling.log_q(rows, ids) if self.source.sampler.log_q else None
        return Negatives(ids, mask, log_q, removed.float(), pool, inverse[place] * mask)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``, averaged over pools."""
        return self.source.log_prob(ids, positives, owner=owner)

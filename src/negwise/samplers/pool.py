"""A pool of candidates for the step, of which each row takes its own: many negatives, few encodings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.draws import Key
from negwise.protocols import Negatives
from negwise.samplers.lists import check_count
from negwise.samplers.popularity import Popularity
from negwise.samplers.request import Request
from negwise.samplers.shared import Shared
from negwise.samplers.shortage import OnShortage, check_policy
from negwise.samplers.uniform import Uniform


@dataclass(frozen=True, eq=False)
class Pool:
    """``size`` candidates a step from ``source``; each row takes K of them, without what it must not draw.

    The candidates depend on (seed, step) only: every rank has the same. At most ``size`` distinct ids have to
    be encoded, whatever B and K are: ``pool`` holds them, and ``index`` (B, K) says which is whose. The choice is
    without replacement over candidates; an id that is in the pool twice may come twice.

    The candidates are independent draws from ``source``, so a slot alone follows ``source`` renormalised over
    what the row may draw: ``log_q`` and ``removed`` are those of ``source``; no ``log_q`` where ``source`` gives none.
    """

    source: Uniform | Popularity
    size: int
    on_shortage: OnShortage = "mask"

    def __post_init__(self) -> None:
        check_policy(self.on_shortage)
        check_count("Pool: size", self.size)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        ask = Request.of(positives, k, key)
        catalogue, rows = self.source.engine.rows(ask.positives, owner)
        candidates = self.source.engine.propose(self.size, key, positives.device)
        shared = Shared(candidates, ~catalogue.excluded(rows, candidates[None, :]))
        place, mask = shared.draw(ask, self.on_shortage, self.source.impl)
        ids = candidates[place] * mask
        pool, inverse = torch.unique(candidates, return_inverse=True)
        removed = 1 - rows.allowed.double() / catalogue.law.total
        log_q = catalogue.log_q(rows, ids) if self.source.engine.log_q else None
        return Negatives(ids, mask, log_q, removed.float(), pool, inverse[place] * mask)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``, over pools."""
        return self.source.log_prob(ids, positives, owner=owner)

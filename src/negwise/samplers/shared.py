"""Candidates that all rows share (a batch, a queue, a pool): each row draws its own, without replacement.

Shapes: B rows, K slots, P candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.protocols import Negatives
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.lists import check_range
from negwise.samplers.request import Request
from negwise.samplers.shortage import OnShortage, settle
from negwise.samplers.subset import places, ranks
from negwise.samplers.words import prefix


@dataclass(frozen=True, eq=False)
class Shared:
    """``ids`` (P,) and which of them each row may draw, ``allowed`` (B, P)."""

    ids: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, ids: Tensor, positives: Tensor, known: Exclusions, owner: Tensor) -> Shared:
        """Neither the positive, wherever it stands, nor what the owner knows."""
        allowed = ids != positives[:, None]
        if len(known.keys):
            check_range("ids", ids, known.n_items)
            allowed &= ~known.contains(owner[:, None], ids)
        return cls(ids, allowed)

    @property
    def available(self) -> Tensor:
        return self.allowed.sum(1)

    @property
    def removed(self) -> Tensor:
        """Share of the candidates that each row may not draw, (B,); 0 of none."""
        return (len(self.ids) - self.available).float() / max(len(self.ids), 1)

    def draw(self, ask: Request, on_shortage: OnShortage, impl: str) -> tuple[Tensor, Tensor]:
        """Places (B, K) among the candidates, 0 where the mask (B, K) is false."""
        filled = settle(ask.wanted, self.available, on_shortage)
        place = places(self.allowed, ranks(self.available, filled, ask, impl))
        mask = prefix(filled, ask.width)
        return place * mask, mask

    def log_prob(self, ids: Tensor) -> Tensor:
        """Log share of ``ids`` (B, K) among what row b may draw: an id that stands twice counts twice."""
        if len(self.ids) == 0:
            return torch.full(ids.shape, -torch.inf, device=ids.device)
        values, order = self.ids.sort()
        ids = ids.contiguous()
        first, last = torch.searchsorted(values, ids), torch.searchsorted(values, ids, right=True)
        # Whether a row may draw an id is the same wherever the id stands, so its first place tells.
        may = self.allowed.gather(1, order[first.clamp(max=len(values) - 1)]) & (last > first)
        share = (last - first).double().log() - self.available.double().log()[:, None]
        return torch.where(may, share, -torch.inf).float()

    def negatives(self, ask: Request, on_shortage: OnShortage, impl: str) -> Negatives:
        place, mask = self.draw(ask, on_shortage, impl)
        ids = self.ids[place] * mask if len(self.ids) else place
        log_q = self.log_prob(ids).masked_fill(~mask, 0)
        return Negatives(ids, mask, log_q, self.removed, self.ids, place)

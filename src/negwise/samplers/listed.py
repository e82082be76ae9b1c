"""Candidates that belong to a row's owner: lists laid side by side. Shapes: B rows, K slots, L longest list."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.samplers.exclusions import Exclusions
from negwise.samplers.lists import Lists


@dataclass(frozen=True, eq=False)
class Listed:
    """``ids`` (B, L), which of them each row may draw, and the share (B,) that it may not."""

    ids: Tensor
    allowed: Tensor
    removed: Tensor

    @classmethod
    def of(cls, lists: Lists, known: Exclusions, positives: Tensor, owner: Tensor) -> Listed:
        ids, listed = lists.padded(owner)
        allowed = listed & (ids != positives[:, None])
        if len(known.keys):
            allowed &= ~known.contains(owner[:, None], ids)
        length = listed.sum(1)
        removed = (length - allowed.sum(1)).float() / length.clamp(min=1)
        return cls(ids, allowed, removed)

    @property
    def available(self) -> Tensor:
        return self.allowed.sum(1)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Log of how often ``ids`` (B, K) stand in the row's list, over what is left of it; -inf for never."""
        values = torch.where(self.allowed, self.ids, -1).sort(1).values
        ids = ids.contiguous()
        times = torch.searchsorted(values, ids, right=True) - torch.searchsorted(values, ids)
        return (times.double().log() - self.available.clamp(min=1).double().log()[:, None]).float()

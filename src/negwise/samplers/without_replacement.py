"""Draws without replacement, from candidates that all rows share (a batch, a queue, a pool) or from a row's own list.

A Fisher-Yates shuffle: slot j swaps candidate j with a random one of the candidates from j on. So every ordered choice
is equally likely, the draws for a smaller K are a prefix of those for a larger K, and each slot by itself is uniform.
Slots past the last candidate draw from all candidates again.

Shapes: B rows, K slots, P candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Stream
from negwise.protocols import Negatives
from negwise.samplers.draw_request import (
    DrawRequest,
    OnShortage,
    load_compiled,
    prefix_mask,
    resolve_impl,
    resolve_shortage,
    scale_words,
    slot_words,
)
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.lists import check_range

CHUNK_SIZE = 2**24
"""Candidates in memory at one time in plain torch: 128 MB."""


@dataclass(frozen=True, eq=False)
class SharedCandidates:
    """Candidates ``ids`` (P,), and ``allowed`` (B, P), True where the row may draw the candidate."""

    ids: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, ids: Tensor, positives: Tensor, exclusions: Exclusions, owner: Tensor) -> SharedCandidates:
        """All ``ids`` are candidates, except the row's positive and the ids that its owner knows."""
        allowed = ids != positives[:, None]
        if len(exclusions.keys):
            check_range("ids", ids, exclusions.n_items)
            allowed &= ~exclusions.contains(owner[:, None], ids)
        return cls(ids, allowed)

    @property
    def available(self) -> Tensor:
        return self.allowed.sum(1)

    @property
    def removed(self) -> Tensor:
        """The share of the candidates that each row may not draw (B,); 0 without candidates."""
        return (len(self.ids) - self.available).float() / max(len(self.ids), 1)

    def draw(self, request: DrawRequest, on_shortage: OnShortage, impl: str) -> tuple[Tensor, Tensor]:
        """Positions (B, K) among the candidates and the mask (B, K). Positions are 0 where the mask is False."""
        filled = resolve_shortage(request.wanted, self.available, on_shortage)
        place = nth_allowed(self.allowed, draw_ranks(self.available, filled, request, impl))
        mask = prefix_mask(filled, request.width)
        return place * mask, mask

    def log_prob(self, ids: Tensor) -> Tensor:
        """Log share of ``ids`` (B, K) among the candidates that row b may draw. A repeated id counts each time."""
        if len(self.ids) == 0:
            return torch.full(ids.shape, -torch.inf, device=ids.device)
        values, order = self.ids.sort()
        ids = ids.contiguous()
        first, last = torch.searchsorted(values, ids), torch.searchsorted(values, ids, right=True)
        # All copies of an id are allowed or none, so the first one tells.
        may = self.allowed.gather(1, order[first.clamp(max=len(values) - 1)]) & (last > first)
        share = (last - first).double().log() - self.available.double().log()[:, None]
        return torch.where(may, share, -torch.inf).float()

    def negatives(self, request: DrawRequest, on_shortage: OnShortage, impl: str) -> Negatives:
        place, mask = self.draw(request, on_shortage, impl)
        ids = self.ids[place] * mask if len(self.ids) else place
        log_q = self.log_prob(ids).masked_fill(~mask, 0)
        return Negatives(ids, mask, log_q, self.removed, self.ids, place)


def draw_ranks(
    sizes: Tensor, filled: Tensor, request: DrawRequest, impl: str = "auto", stream: Stream = Stream.ITEM
) -> Tensor:
    """For each row ``filled[b]`` of the numbers 0..sizes[b] - 1, without replacement, then zeros: (B, K)."""
    if resolve_impl(impl, sizes.device) == "torch":
        return shuffle_ranks(sizes, filled, request, stream)
    out = torch.empty(len(sizes), request.width, dtype=torch.int64)
    load_compiled().shuffle_rows(
        out.numpy(),
        request.key.rows(len(sizes)).numpy(),
        np.uint64(request.key.seed),
        int(request.key.step),
        int(stream),
        sizes.numpy(),
        filled.numpy(),
        int(sizes.max()) if len(sizes) else 0,
    )
    return out


def shuffle_ranks(sizes: Tensor, filled: Tensor, request: DrawRequest, stream: Stream = Stream.ITEM) -> Tensor:
    """`draw_ranks` in plain torch, on all rows of a chunk at once."""
    size = int(sizes.max()) if len(sizes) else 0
    hi, lo = slot_words(request.key, request.width, stream)
    out = torch.zeros_like(hi)
    chunk = max(1, CHUNK_SIZE // max(size, 1))
    for first in range(0, len(sizes) if size else 0, chunk):
        rows = slice(first, first + chunk)
        n = sizes[rows, None]
        order = torch.arange(size, device=sizes.device).repeat(len(n), 1)
        for j in range(request.width):
            h, w = hi[rows, j : j + 1], lo[rows, j : j + 1]
            inside = j < n
            at = torch.where(inside, j + scale_words(h, w, (n - j).clamp(min=1)), scale_words(h, w, n))
            chosen = order.gather(1, at)
            if j < size:
                # Swap the two. A row with no candidate left keeps both.
                first_left = order[:, j : j + 1].clone()
                order.scatter_(1, at, torch.where(inside, first_left, chosen))
                order[:, j : j + 1] = torch.where(inside, chosen, first_left)
            out[rows, j : j + 1] = chosen
    return out * prefix_mask(filled, request.width)


def nth_allowed(allowed: Tensor, rank: Tensor) -> Tensor:
    """The position of the ``rank``-th (B, K) True value in each row of ``allowed`` (B, N); 0 past the last one."""
    if allowed.shape[1] == 0:
        return torch.zeros_like(rank)
    place = torch.searchsorted(allowed.cumsum(1), rank + 1)
    return torch.where(place < allowed.shape[1], place, 0)

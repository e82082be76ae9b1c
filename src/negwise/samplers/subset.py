"""Without replacement: the first slots of a shuffled deck, by Fisher and Yates.

Slot j swaps card j with one of the cards from j on, so every ordered choice is equally likely, a smaller K is
a prefix of a larger one, and each slot alone is uniform. Slots past the end of the deck draw from all of it
again. Shapes: B rows, K slots, N cards.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Stream
from negwise.samplers.engine import kernels, which
from negwise.samplers.request import Request
from negwise.samplers.words import prefix, scale, slots

CARDS_AT_ONCE = 2**24
"""Cards laid out at one time in plain torch: 128 MB."""


def ranks(cards: Tensor, filled: Tensor, ask: Request, impl: str = "auto") -> Tensor:
    """``filled[b]`` of the numbers 0..cards[b] - 1 for each row, then zeros: (B, K)."""
    if which(impl, cards.device) == "torch":
        return shuffle(cards, filled, ask)
    out = torch.empty(len(cards), ask.width, dtype=torch.int64)
    kernels().shuffle(
        out.numpy(),
        ask.key.rows(len(cards)).numpy(),
        np.uint64(ask.key.seed),
        int(ask.key.step),
        int(Stream.ITEM),
        cards.numpy(),
        filled.numpy(),
        int(cards.max()) if len(cards) else 0,
    )
    return out


def shuffle(cards: Tensor, filled: Tensor, ask: Request) -> Tensor:
    """The plain text of `ranks`, all rows of a chunk side by side."""
    size = int(cards.max()) if len(cards) else 0
    hi, lo = slots(ask.key, ask.width, Stream.ITEM)
    out = torch.zeros_like(hi)
    chunk = max(1, CARDS_AT_ONCE // max(size, 1))
    for first in range(0, len(cards) if size else 0, chunk):
        rows = slice(first, first + chunk)
        n = cards[rows, None]
        deck = torch.arange(size, device=cards.device).repeat(len(n), 1)
        for j in range(ask.width):
            h, w = hi[rows, j : j + 1], lo[rows, j : j + 1]
            inside = j < n
            at = torch.where(inside, j + scale(h, w, (n - j).clamp(min=1)), scale(h, w, n))
            card = deck.gather(1, at)
            if j < size:
                # A swap; where the row's deck is out, both places keep what they have.
                top = deck[:, j : j + 1].clone()
                deck.scatter_(1, at, torch.where(inside, top, card))
                deck[:, j : j + 1] = torch.where(inside, card, top)
            out[rows, j : j + 1] = card
    return out * prefix(filled, ask.width)


def places(allowed: Tensor, rank: Tensor) -> Tensor:
    """Where the ``rank``-th true value (B, K) of each row of ``allowed`` (B, N) stands; 0 past the last."""
    if allowed.shape[1] == 0:
        return torch.zeros_like(rank)
    place = torch.searchsorted(allowed.cumsum(1), rank + 1)
    return torch.where(place < allowed.shape[1], place, 0)

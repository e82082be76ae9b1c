"""Eq. 1 as it is written, every score in memory at once. The other implementations answer to this one.

Shapes: B rows, K negatives, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from negwise.losses.layout import Layout
from negwise.losses.result import Rows
from negwise.losses.visible import EVERYTHING, Visible


def rows(query: Tensor, positive: Tensor, layout: Layout, seen: Visible, stats: bool) -> Rows:
    """``query`` (B, D) over temperature, ``positive`` (B,) the positive's score -> the loss of each row."""
    return score_rows(positive, scores(query, layout, seen), seen, stats)


def scores(query: Tensor, layout: Layout, seen: Visible) -> Tensor:
    """(B, K): the score of each negative that some row sees."""
    allowed = seen.allowed(EVERYTHING, slice(seen.width))
    keys = layout.block(EVERYTHING, slice(seen.width), query.dtype, allowed)
    if keys.dim() == 2:
        return query @ keys.t()
    return torch.bmm(query[:, None], keys.transpose(1, 2))[:, 0]


def score_rows(positive: Tensor, negatives: Tensor, seen: Visible, stats: bool) -> Rows:
    """``-log(e^f+ / (e^f+ + sum_i e^f-_i))`` of each row (eq. 1), ``positive`` (B,) and ``negatives`` (B, K)."""
    allowed = seen.allowed(EVERYTHING, EVERYTHING)
    pairs = seen.pairs(len(positive), positive.device)
    logits = negatives
    if seen.log_q is not None:
        logits = negatives - seen.log_q - pairs.to(negatives.dtype).log()[:, None]
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    loss = -F.log_softmax(torch.cat([positive[:, None], logits], 1), 1)[:, 0]
    # A key of -inf weighs nothing in the loss and still poisons the gradient: nothing times it is NaN, so it shows.
    visible = negatives.detach() if allowed is None else negatives.detach().masked_fill(~allowed, 0)
    loss = loss + (visible * 0).sum(1)
    if not stats:
        return Rows(loss, None, None)
    return Rows(loss, won(positive, negatives, allowed), pairs)


@torch.no_grad()
def won(positive: Tensor, negatives: Tensor, allowed: Tensor | None) -> Tensor:
    """(B,) float64: negatives below the positive, a tie is half a win."""
    above = positive[:, None]
    wins = (negatives < above).double() + (negatives == above).double() / 2
    return (wins if allowed is None else wins * allowed).sum(1)

"""Eq. 1 as it is written, every score in memory at once. The other implementations answer to this one.

Shapes: B rows, K negatives, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from negwise.losses.layout import Layout
from negwise.losses.masking import ALL, Masking
from negwise.losses.result import RowLosses


def reference_losses(query: Tensor, positive: Tensor, layout: Layout, masking: Masking, stats: bool) -> RowLosses:
    """``query`` (B, D) over temperature, ``positive`` (B,) the positive's score -> the loss of each row."""
    return losses_from_scores(positive, negative_scores(query, layout, masking), masking, stats)


def negative_scores(query: Tensor, layout: Layout, masking: Masking) -> Tensor:
    """(B, K): the score of each negative that some row sees."""
    allowed = masking.allowed(ALL, slice(masking.width))
    keys = layout.block(ALL, slice(masking.width), query.dtype, allowed)
    if keys.dim() == 2:
        return query @ keys.t()
    return torch.bmm(query[:, None], keys.transpose(1, 2))[:, 0]


def losses_from_scores(positive: Tensor, negatives: Tensor, masking: Masking, stats: bool) -> RowLosses:
    """``-log(e^f+ / (e^f+ + sum_i e^f-_i))`` of each row (eq. 1), ``positive`` (B,) and ``negatives`` (B, K)."""
    allowed = masking.allowed(ALL, ALL)
    pairs = masking.count_pairs(len(positive), positive.device)
    logits = negatives
    if masking.log_q is not None:
        logits = negatives - masking.log_q - pairs.to(negatives.dtype).log()[:, None]
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    loss = -F.log_softmax(torch.cat([positive[:, None], logits], 1), 1)[:, 0]
    # A key of -inf weighs nothing in the loss and still poisons the gradient: nothing times it is NaN, so it shows.
    seen_scores = negatives.detach() if allowed is None else negatives.detach().masked_fill(~allowed, 0)
    loss = loss + (seen_scores * 0).sum(1)
    if not stats:
        return RowLosses(loss, None, None)
    return RowLosses(loss, count_wins(positive, negatives, allowed), pairs)


@torch.no_grad()
def count_wins(positive: Tensor, negatives: Tensor, allowed: Tensor | None) -> Tensor:
    """(B,) float64: negatives below the positive, a tie is half a win."""
    above = positive[:, None]
    wins = (negatives < above).double() + (negatives == above).double() / 2
    return (wins if allowed is None else wins * allowed).sum(1)

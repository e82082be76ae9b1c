"""Eq. 1 as it is written, with every score in memory. The other implementations are tested against this one.

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
    """The loss of each row, from ``query`` (B, D) divided by temperature and the positive's score ``positive`` (B,)."""
    return losses_from_scores(positive, negative_scores(query, layout, masking), masking, stats)


def negative_scores(query: Tensor, layout: Layout, masking: Masking) -> Tensor:
    """The score of each negative, (B, K); without meaning where masked."""
    allowed = masking.allowed(ALL, slice(masking.width))
    keys = layout.block(ALL, slice(masking.width), query.dtype, allowed)
    if keys.dim() == 2:
        return query @ keys.t()
    return torch.bmm(query[:, None], keys.transpose(1, 2))[:, 0]


def losses_from_scores(positive: Tensor, negatives: Tensor, masking: Masking, stats: bool) -> RowLosses:
    """Eq. 1 of each row: ``-log(e^f+ / (e^f+ + sum_i e^f-_i))``, from ``positive`` (B,) and ``negatives`` (B, K)."""
    allowed = masking.allowed(ALL, ALL)
    pairs = masking.count_pairs(len(positive), positive.device)
    logits = negatives
    if masking.log_q is not None:
        logits = negatives - masking.log_q - pairs.to(negatives.dtype).log()[:, None]
    if allowed is not None:
        logits = logits.masked_fill(~allowed, -torch.inf)
    loss = -F.log_softmax(torch.cat([positive[:, None], logits], 1), 1)[:, 0]
    # A score of -inf has no weight in the loss, yet makes the gradient NaN. 0 * inf is NaN, so that the loss shows it.
    seen_scores = negatives.detach() if allowed is None else negatives.detach().masked_fill(~allowed, 0)
    loss = loss + (seen_scores * 0).sum(1)
    if not stats:
        return RowLosses(loss)
    return RowLosses(loss, count_wins(positive, negatives, allowed), pairs, count_hits(positive, negatives, allowed))


@torch.no_grad()
def count_wins(positive: Tensor, negatives: Tensor, allowed: Tensor | None) -> Tensor:
    """The number of negatives below the positive, (B,) float64. A tie is half a win."""
    above = positive[:, None]
    wins = (negatives < above).double() + (negatives == above).double() / 2
    return (wins if allowed is None else wins * allowed).sum(1)


@torch.no_grad()
def count_hits(positive: Tensor, negatives: Tensor, allowed: Tensor | None) -> Tensor:
    """1 / (1 + ties) for a row without a negative above the positive, else 0; 0 without negatives. (B,) float64.

    This is the chance that the positive is first when ties are put in random order.
    """
    own = positive[:, None]
    above, ties = negatives > own, negatives == own
    if allowed is None:
        allowed = torch.ones_like(above)
    first = ~(above & allowed).any(1) & allowed.any(1)
    return first.double() / (1 + (ties & allowed).sum(1))

"""InfoNCE of a batch against its own candidates with every score in memory: one product, and each score read in place.

It equals `info_nce` with the same mask. On a CPU it is faster for the batches that people have: the scores are turned
into the softmax where they lie, and the backward pass needs no second product. Where they do not fit, `info_nce`
streams.

Shapes: B rows, M candidates, D width, G given negatives of a row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

MOST_SCORES = 2**24
"""Scores of a batch that are kept in memory, 64 MB of them."""


class DenseResult(NamedTuple):
    """The loss of each row and its counts, (B,), as in `negwise.losses.LossResult`, and over drawn negatives alone."""

    loss: Tensor
    wins: Tensor
    pairs: Tensor
    hits: Tensor
    of_drawn: tuple[Tensor, Tensor, Tensor]


def fits(query: Tensor, candidates: Tensor) -> bool:
    """Whether this is the way for such a batch."""
    return query.device.type == "cpu" and len(query) * len(candidates) <= MOST_SCORES


def dense_losses(
    query: Tensor, candidates: Tensor, own: Tensor, mask: Tensor | None, given: Tensor | None
) -> DenseResult:
    """Eq. 1 of each row from ``query`` (B, D), divided by the temperature, and ``candidates`` (M, D).

    ``own`` (B,) is the place of each row's positive. ``mask`` (B, M) is True for its negatives; None means all others.
    ``given`` (B, G) are the places of its given negatives.
    """
    loss, counts, of_given = _Dense.apply(query, candidates, own, mask, given)  # type: ignore[no-untyped-call]
    wins, pairs, hits = _wins_pairs_hits(counts)
    of_drawn = (wins, pairs, hits) if given is None else _wins_pairs_hits(counts - of_given)
    return DenseResult(loss, wins, pairs, hits, of_drawn)


def _wins_pairs_hits(counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """From ``counts`` (3, B): negatives above the positive, level with it, and all of them."""
    above, ties, pairs = counts.double()
    return pairs - above - ties / 2, pairs, ((above == 0) & (pairs > 0)) / (1 + ties)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, candidates: Tensor, own: Tensor, mask: Tensor | None, given: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        scores = query @ candidates.t()
        place = own[:, None]
        scores.sub_(scores.gather(1, place))  # relative to the positive's, whose own is exactly 0
        if mask is not None:
            scores.masked_fill_(~mask.scatter(1, place, True), -torch.inf)
        # Signs as numbers: adding those up takes a quarter of the time that counting booleans does.
        signs = scores.sign()
        balance = signs.sum(1)  # above less below
        above = signs.clamp_(min=0).sum(1)
        ties = balance + scores.shape[1] - 1 - 2 * above
        pairs = torch.full_like(above, scores.shape[1] - 1) if mask is None else mask.sum(1).to(above.dtype)
        counts = torch.stack((above, ties, pairs))
        of_given = None
        if given is not None:
            theirs = scores.gather(1, given)
            of_given = torch.stack([(theirs > 0).sum(1), (theirs == 0).sum(1), (theirs > -torch.inf).sum(1)])
        most = scores.amax(1, keepdim=True)  # at least 0, the positive's own
        total = scores.sub_(most).exp_().sum(1, keepdim=True)
        ctx.save_for_backward(query, candidates, scores, total, place)
        ctx.mark_non_differentiable(counts, *([] if of_given is None else [of_given]))
        return (total.log() + most)[:, 0], counts, of_given

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        query, candidates, weights, total, place = ctx.saved_tensors
        weights = weights * (grad[:, None] / total)
        weights.scatter_add_(1, place, -grad[:, None])
        to_query = weights @ candidates if ctx.needs_input_grad[0] else None
        to_candidates = weights.t() @ query if ctx.needs_input_grad[1] else None
        return to_query, to_candidates, None, None, None

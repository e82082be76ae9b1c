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
    loss, *counts = _Dense.apply(query, candidates, own, mask, given)  # type: ignore[no-untyped-call]
    above, ties, pairs, given_above, given_ties, given_pairs = (one.double() for one in counts)
    wins, hits = _wins_and_hits(above, ties, pairs)
    if given is None:
        return DenseResult(loss, wins, counts[2], hits, (wins, counts[2], hits))
    of_drawn = (above - given_above, ties - given_ties, pairs - given_pairs)
    drawn_wins, drawn_hits = _wins_and_hits(*of_drawn)
    return DenseResult(loss, wins, counts[2], hits, (drawn_wins, of_drawn[2], drawn_hits))


def _wins_and_hits(above: Tensor, ties: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor]:
    return pairs - above - ties / 2, torch.where((above == 0) & (pairs > 0), 1 / (1 + ties), 0.0)


class _Dense(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, candidates: Tensor, own: Tensor, mask: Tensor | None, given: Tensor | None
    ) -> tuple[Tensor, ...]:
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
        pairs = torch.full_like(own, scores.shape[1] - 1) if mask is None else mask.sum(1)
        counts = [above, ties, pairs]
        if given is None:
            counts += [torch.zeros_like(above)] * 3
        else:
            of_given = scores.gather(1, given)
            kept = of_given > -torch.inf
            counts += [(of_given > 0).sum(1), (of_given == 0).sum(1), kept.sum(1)]
        most = scores.amax(1, keepdim=True)  # at least 0, the positive's own
        total = scores.sub_(most).exp_().sum(1, keepdim=True)
        ctx.save_for_backward(query, candidates, scores, total, place)
        ctx.mark_non_differentiable(*counts)
        return ((total.log() + most)[:, 0], *counts)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        query, candidates, weights, total, place = ctx.saved_tensors
        weights = weights * (grad[:, None] / total)
        weights.scatter_add_(1, place, -grad[:, None])
        to_query = weights @ candidates if ctx.needs_input_grad[0] else None
        to_candidates = weights.t() @ query if ctx.needs_input_grad[1] else None
        return to_query, to_candidates, None, None, None

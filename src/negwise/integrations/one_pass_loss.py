"""InfoNCE of a batch against its own candidates: loss, counts and gradients in one pass over the scores.

It equals the mean of `info_nce` with the same mask. The scores are made once, a block of rows at a time, and turned
into the softmax and the gradient where they lie. The backward pass only scales what is there: three matrix products in
all, where streaming takes four. That needs a loss whose rows all weigh the same, as here.

Shapes: B rows, M candidates, D width, G given negatives of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK_SCORES = {"cpu": 2**22, "cuda": 2**26}
"""Scores that are in memory at a time, some 16 and 256 MB of them, three times over."""


class OnePassResult(NamedTuple):
    """The mean loss, and of each row its loss and its counts, (B,), as in `negwise.losses.LossResult`, in float64.

    ``of_drawn`` are wins, pairs and hits over drawn negatives alone.
    """

    mean: Tensor
    loss: Tensor
    wins: Tensor
    pairs: Tensor
    hits: Tensor
    rows: Tensor
    of_drawn: tuple[Tensor, Tensor, Tensor]


def takes(query: Tensor) -> bool:
    """Whether this is the way for such vectors; for half precision on a GPU there are kernels."""
    return query.device.type == "cpu" or (query.device.type == "cuda" and query.dtype == torch.float32)


def one_pass_loss(
    query: Tensor, candidates: Tensor, own: Tensor, mask: Tensor | None, given: Tensor | None
) -> OnePassResult:
    """The mean of eq. 1 from ``query`` (B, D), divided by the temperature, and ``candidates`` (M, D).

    ``own`` (B,) is the place of each row's positive. ``mask`` (B, M) is True for its negatives; None means all others.
    ``given`` (B, G) are the places of its given negatives.
    """
    mean, loss, counts, of_given = _OnePass.apply(  # type: ignore[no-untyped-call]
        query, candidates, own, mask, given, torch.is_grad_enabled()
    )
    wins, pairs, hits, rows = _of_rows(counts)
    of_drawn = (wins, pairs, hits) if given is None else _of_rows(counts - of_given)[:3]
    return OnePassResult(mean, loss, wins, pairs, hits, rows, of_drawn)


def _of_rows(counts: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Wins, pairs, hits and rows from ``counts`` (3, B): negatives above the positive, level with it, all of them."""
    above, ties, pairs = counts.double()
    rows = pairs.clamp(max=1)
    return torch.add(pairs - above, ties, alpha=-0.5), pairs, rows * (above == 0) / (1 + ties), rows


class _OnePass(torch.autograd.Function):
    """Of the mean loss alone; the other outputs have no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        candidates: Tensor,
        own: Tensor,
        mask: Tensor | None,
        given: Tensor | None,
        learns: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        found: list[tuple[Tensor, ...]] = []
        to_query: list[Tensor] = []
        to_candidates: Tensor | None = None
        rows = max(1, BLOCK_SCORES[query.device.type] // len(candidates))
        for part, place, kept, theirs in _blocks(rows, query, own[:, None], mask, given):
            scores, total, *told = _softmax(part @ candidates.t(), place, kept, theirs)
            found.append(tuple(told))
            if learns and any(ctx.needs_input_grad[:2]):
                # The softmax less 1 at the positive, over B for the mean: the gradient of the scores.
                scores.div_(total * len(query)).scatter_add_(1, place, scores.new_full(place.shape, -1 / len(query)))
                if ctx.needs_input_grad[0]:
                    to_query.append(scores @ candidates)
                if ctx.needs_input_grad[1]:
                    back = scores.t()
                    to_candidates = back @ part if to_candidates is None else to_candidates.addmm_(back, part)
        ctx.save_for_backward(_joined(to_query, 0) if to_query else None, to_candidates)
        loss, counts, *of_given = (_joined(parts, -1) for parts in zip(*found, strict=True))
        ctx.mark_non_differentiable(loss, counts, *of_given)
        ctx.set_materialize_grads(False)  # of the other outputs, which have none
        return loss.mean(), loss, counts, of_given[0] if of_given else None

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        scaled = [None if saved is None else saved * grad for saved in ctx.saved_tensors]
        return *scaled, None, None, None, None


def _softmax(scores: Tensor, place: Tensor, mask: Tensor | None, given: Tensor | None) -> tuple[Tensor, ...]:
    """The softmax over ``scores`` (rows, M), in place, times its sum ``total`` (rows, 1); the loss; what is counted.

    ``place`` (rows, 1) is that of the positive. What is counted are negatives above the positive, level with it, and
    all of them, (3, rows), and the same of the given ones.
    """
    scores.sub_(scores.gather(1, place))  # relative to the positive's, whose own is exactly 0
    if mask is not None:
        scores.masked_fill_(~mask.scatter(1, place, True), -torch.inf)
    # Signs as numbers: adding those up takes a quarter of the time that counting booleans does.
    signs = scores.sign()
    balance = signs.sum(1)  # above less below
    above = signs.clamp_(min=0).sum(1)
    ties = balance + scores.shape[1] - 1 - 2 * above
    pairs = torch.full_like(above, scores.shape[1] - 1) if mask is None else mask.sum(1).to(above.dtype)
    counts = [torch.stack((above, ties, pairs))]
    if given is not None:
        theirs = scores.gather(1, given)
        counts.append(torch.stack([(theirs > 0).sum(1), (theirs == 0).sum(1), (theirs > -torch.inf).sum(1)]))
    most = scores.amax(1, keepdim=True)  # at least 0, the positive's own
    total = scores.sub_(most).exp_().sum(1, keepdim=True)
    return scores, total, (total.log() + most)[:, 0], *counts


def _blocks(rows: int, *tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """``tensors`` (B, ...) cut into blocks of so many ``rows``; as they are if one block is enough."""
    size = len(next(one for one in tensors if one is not None))
    if size <= rows:
        yield tensors
        return
    for start in range(0, size, rows):
        yield tuple(None if one is None else one[start : start + rows] for one in tensors)


def _joined(blocks: Sequence[Tensor], dim: int) -> Tensor:
    return blocks[0] if len(blocks) == 1 else torch.cat(list(blocks), dim)

"""Eq. 1 for many ids into a small table, in plain torch: count how often each row has each id, then share the table.

K lookups per row copy K D numbers. If K is not far below M, all M scores of a row by a matrix product are less work.
With ``c_bj`` how often row b has row j of the table, and ``d_bj`` its score less the positive's, eq. 1 is
``log(1 + sum_j c_bj e^(d_bj))``. Rows are taken in blocks, so that memory is a few MB whatever B, K and M. The gradient
of the table computes the scores again.

Shapes: B rows, K negatives each, M rows of the table, D width; R rows in a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from negwise.errors import NegwiseError
from negwise.losses.layout import Layout, TableKeys, block_slices
from negwise.losses.masking import ALL, Masking
from negwise.losses.result import RowLosses
from negwise.losses.saved_tensors import split_tensors
from negwise.losses.streamed import LOG2E

BUDGET = 2**20
"""Scores in a block of rows: a few of them stay in the cache of a CPU."""
LOOKUP = 20
"""A lookup takes about as long as so many multiplications and additions of a matrix product (measured on a CPU)."""
PER_SCORE = 100
"""What else is done for each score, in the same unit: the exponential, the count, sums."""


def cannot_count_here(layout: Layout, masking: Masking) -> str | None:
    """Why ids cannot be counted first, or None if they can. It reads the table."""
    if not isinstance(layout, TableKeys):
        return "it counts ids into a table, and there are no ids"
    if not len(layout.keys):
        return "the table is empty"
    if masking.log_q is not None:
        return "log_q corrects single draws, and counts do not keep those apart"
    if not bool(torch.isfinite(layout.keys).all()):
        return "a vector of the table is not finite, and every row would read it"
    return None


def worth_counting_here(layout: Layout, masking: Masking) -> bool:
    """Whether counting ids is less work than looking up a vector for each."""
    if not isinstance(layout, TableKeys) or layout.keys.device.type != "cpu":
        return False
    size, depth = layout.keys.shape
    fewer = size * (depth + PER_SCORE) < masking.width * (LOOKUP * depth + PER_SCORE)
    return fewer and cannot_count_here(layout, masking) is None


def counted_losses(query: Tensor, positive: Tensor, layout: Layout, masking: Masking, stats: bool) -> RowLosses:
    """The loss of each row, from ``query`` (B, D) divided by temperature and the positive's score ``positive`` (B,)."""
    assert isinstance(layout, TableKeys)
    graph = torch.is_grad_enabled()
    loss, wins, pairs, hits = _Counted.apply(  # type: ignore[no-untyped-call]
        query, positive, layout.keys, layout, masking, graph
    )
    return RowLosses(loss, wins, pairs, hits) if stats else RowLosses(loss)


class _Counted(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, positive: Tensor, keys: Tensor, layout: TableKeys, masking: Masking, graph: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        table = keys.to(query.dtype)
        parts = list(block_slices(len(query), max(1, BUDGET // len(keys))))
        blocks = [_forward(query[part], positive[part], table, layout.ids, masking, part, graph) for part in parts]
        found = _Block(*(torch.cat(each) for each in zip(*blocks, strict=True)))
        # Frozen negatives are not saved, so that a queue may be overwritten before the backward pass.
        tensors, ctx.rebuild = (
            split_tensors(TableKeys(table, layout.ids), masking) if ctx.needs_input_grad[2] else ([], None)
        )
        recomputed = (query, positive, found.shift, found.norm) if ctx.needs_input_grad[2] else ()
        ctx.save_for_backward(found.share, found.weighted_keys, *recomputed, *tensors)
        ctx.parts, ctx.key_dtype = parts, keys.dtype
        ctx.mark_non_differentiable(found.wins, found.pairs, found.hits)
        return found.loss, found.wins, found.pairs, found.hits

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NegwiseError("the counted loss has no second derivative; pass impl='reference' to info_nce")
        share, weighted_keys, *recomputed = ctx.saved_tensors
        need_query, need_positive, need_keys, *rest = ctx.needs_input_grad
        for_query = grad[:, None] * weighted_keys if need_query else None
        for_positive = -grad * share if need_positive else None
        for_keys = None
        if need_keys:
            query, positive, shift, norm, *saved = recomputed
            layout, masking = ctx.rebuild(saved)
            weighted = query * (grad / norm)[:, None]
            with torch.autocast(query.device.type, enabled=False):
                for_keys = _table_grad(query, positive, weighted, shift, layout, masking, ctx.parts).to(ctx.key_dtype)
        return (for_query, for_positive, for_keys, *([None] * len(rest)))


class _Block(NamedTuple):
    """The results of a block of rows. ``norm`` (R,) is ``2^-shift + sum_j c_j 2^(d_j log2 e - shift)``."""

    loss: Tensor
    wins: Tensor
    pairs: Tensor
    hits: Tensor
    shift: Tensor
    norm: Tensor
    share: Tensor
    weighted_keys: Tensor  # (R, D), (R, 0) without a graph


def _forward(
    query: Tensor, positive: Tensor, table: Tensor, ids: Tensor, masking: Masking, part: slice, graph: bool
) -> _Block:
    counts, pairs = _count(ids, masking, part, len(table), query.dtype)
    raw = _scores(query, positive, table, counts)
    peak = raw.amax(1)
    shift = (peak * LOG2E).ceil_().clamp_(min=0)  # so that no power is above 1 where one could overflow
    terms = _terms(raw, shift, counts)
    sums = terms.sum(1)
    norm = torch.exp2(-shift) + sums
    loss = torch.where(shift == 0, torch.log1p(sums), shift / LOG2E + torch.log(norm))
    weighted = (terms @ table) / norm[:, None] if graph else table.new_empty(len(query), 0)
    above = (raw.sign_().mul_(counts).sum(1).double() + pairs) / 2  # ties count half
    first = (peak <= 0) & (pairs > 0)
    hits = first / (1 + 2 * above)  # without a negative above, only ties are counted there, as a half each
    return _Block(loss, pairs - above, pairs, hits, shift, norm, sums / norm, weighted)


def _table_grad(
    query: Tensor,
    positive: Tensor,
    weighted: Tensor,
    shift: Tensor,
    layout: TableKeys,
    masking: Masking,
    parts: Sequence[slice],
) -> Tensor:
    """The gradient of the table. It computes the scores again, block by block."""
    grad = torch.zeros_like(layout.keys)
    for part in parts:
        counts, _ = _count(layout.ids, masking, part, len(layout.keys), query.dtype)
        raw = _scores(query[part], positive[part], layout.keys, counts)
        grad.addmm_(_terms(raw, shift[part], counts).t(), weighted[part])
    return grad


def _count(ids: Tensor, masking: Masking, part: slice, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """How often each row of a block has each row of the table, (R, M), and its number of negatives, (R,) int64."""
    mine, allowed = ids[part, : masking.width], masking.allowed(part, ALL)
    ones = torch.ones((), dtype=dtype, device=ids.device).expand_as(mine) if allowed is None else allowed.to(dtype)
    counts = torch.zeros(len(mine), size, dtype=dtype, device=ids.device).scatter_add_(1, mine, ones)
    pairs = torch.full((len(mine),), mine.shape[1], device=ids.device) if allowed is None else allowed.sum(1)
    return counts, pairs


def _scores(query: Tensor, positive: Tensor, table: Tensor, counts: Tensor) -> Tensor:
    """Scores less the positive's, (R, M); -inf where the row does not have the id."""
    return torch.addmm(-positive[:, None], query, table.t()).masked_fill_(counts == 0, -torch.inf)


def _terms(raw: Tensor, shift: Tensor, counts: Tensor) -> Tensor:
    """``c_j 2^(d_j log2 e - shift)``, (R, M)."""
    return torch.add(-shift[:, None], raw, alpha=LOG2E).exp2_().mul_(counts)

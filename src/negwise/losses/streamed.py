"""Eq. 1 in one pass over blocks of negatives: bounded memory, on any device, with the win rate.

With ``d_j = f-_j - f+`` (and the correction of ``log_q``), eq. 1 is ``log(1 + S)``, ``S = sum_j e^(d_j)``. Its gradient
with respect to the query is ``sum_j e^(d_j) key_j / (1 + S)`` and with respect to ``f+`` it is ``-S / (1 + S)``. Both
accumulate in the same pass, as in attention, so frozen negatives need only one pass. The gradient of the negatives
needs the final S, so a second pass computes the scores again.

What makes it fast:

- Scores are relative to the positive's score, where attention needs a running maximum. No ``d`` is too small, since the
  1 absorbs terms that underflow. A row shifts its reference up only if the sum of a block gets too large. That costs
  one check of (R,) numbers per block, and a second computation of the few blocks that need it.
- ``2^(d log2 e)`` instead of ``e^d``: torch's vectorised ``exp2`` takes a third of the time of ``exp`` on a CPU.
- ``sum(sign(d))`` counts wins and ties at once, exactly. Where no d is above 0, as their maximum tells, it is the
  number of ties less that of wins, which gives the hits.

Shapes: B rows, K negatives, D width; R x C a block.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from negwise.errors import NegwiseError
from negwise.losses.layout import Layout, block_slices
from negwise.losses.masking import Masking
from negwise.losses.result import RowLosses
from negwise.losses.saved_tensors import split_tensors

LOG2E = math.log2(math.e)
SUM_LIMIT = 2.0**60
"""A larger sum of a block shifts the reference. It is far below float32's maximum, so nothing overflows before."""

BUDGET = {"cpu": 2**18}
"""Numbers per block, such that its scores and keys stay in the cache of a CPU core."""
WIDE_BUDGET = 2**24
"""Numbers per block on an accelerator, where each block costs kernel launches and one wait."""


def streamed_losses(query: Tensor, positive: Tensor, layout: Layout, masking: Masking, stats: bool) -> RowLosses:
    """The loss of each row, from ``query`` (B, D) divided by temperature and the positive's score ``positive`` (B,)."""
    graph = torch.is_grad_enabled()
    loss, wins, pairs, hits = _Streamed.apply(  # type: ignore[no-untyped-call]
        query, positive, layout.keys, layout, masking, stats, graph
    )
    return RowLosses(loss, wins, pairs, hits) if stats else RowLosses(loss)


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        positive: Tensor,
        keys: Tensor,
        layout: Any,  # a Layout that is a dataclass, for replace()
        masking: Masking,
        stats: bool,
        graph: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        needs_query_grad = graph and ctx.needs_input_grad[0]
        tile_rows, tile_cols = _tile_shape(query, layout, masking)
        result = _join(
            [
                _forward(query[part], positive[part], layout, masking, part, tile_cols, stats, needs_query_grad)
                for part in block_slices(len(query), tile_rows)
            ]
        )
        scale = torch.ones_like(result.sums)
        if masking.log_q is not None:
            scale /= result.pairs.clamp(min=1)
        sums = result.sums * scale
        norm = torch.exp2(-result.shift) + sums
        loss = torch.where(result.shift == 0, torch.log1p(sums), result.shift / LOG2E + torch.log(norm))
        scale = scale / norm
        weighted_keys = result.weighted_keys
        if weighted_keys is not None:
            weighted_keys = weighted_keys.mul_(scale.to(query.dtype)[:, None])
        share = (sums / norm).to(query.dtype)
        if weighted_keys is not None:  # as in the reference: a NaN in the gradient must show in the loss
            loss = loss + (weighted_keys * 0).sum(1)
        # Frozen negatives are not saved, so that a queue may be overwritten before the backward pass.
        tensors, ctx.rebuild = (
            split_tensors(replace(layout, keys=keys), masking) if ctx.needs_input_grad[2] else ([], None)
        )
        recomputed = (query, positive, result.shift, scale) if ctx.needs_input_grad[2] else ()
        ctx.save_for_backward(share, weighted_keys, *recomputed, *tensors)
        ctx.tile_shape = tile_rows, tile_cols
        wins = result.pairs - result.above
        first = (result.peak <= 0) & (result.pairs > 0)
        hits = first / (1 + 2 * result.above)  # without a negative above, only ties are counted there, as a half each
        ctx.mark_non_differentiable(wins, result.pairs, hits)
        return loss.to(query.dtype), wins, result.pairs, hits

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NegwiseError("the streamed loss has no second derivative; pass impl='reference' to info_nce")
        share, weighted_keys, *recomputed = ctx.saved_tensors
        need_query, need_positive, need_keys, *rest = ctx.needs_input_grad
        for_query = grad[:, None] * weighted_keys if need_query else None
        for_positive = -grad * share if need_positive else None
        for_keys = None
        if need_keys:
            query, positive, shift, scale, *tensors = recomputed
            weighted = query * (grad * scale).to(query.dtype)[:, None]
            layout, masking = ctx.rebuild(tensors)
            with torch.autocast(query.device.type, enabled=False):
                for_keys = _backward(query, positive, weighted, shift, layout, masking, *ctx.tile_shape)
        return (for_query, for_positive, for_keys, *([None] * len(rest)))


class _PassResult(NamedTuple):
    """The result of a pass. The true sum is ``sums * 2^shift``; the same holds for ``weighted_keys``."""

    sums: Tensor  # (R,) float64, float32 on MPS: sums of 2^(d log2 e - shift)
    shift: Tensor  # (R,) the same: an integer, so that changing it is exact
    above: Tensor  # (R,) the same: negatives above the positive, ties count half
    peak: Tensor  # (R,) in the query's dtype: the largest d; -inf without negatives
    pairs: Tensor  # (R,) int64
    weighted_keys: Tensor | None  # (R, D): sum_j 2^(d_j log2 e - shift) key_j


def _join(parts: list[_PassResult]) -> _PassResult:
    if len(parts) == 1:
        return parts[0]
    weighted_keys = [part.weighted_keys for part in parts if part.weighted_keys is not None]
    return _PassResult(
        sums=torch.cat([part.sums for part in parts]),
        shift=torch.cat([part.shift for part in parts]),
        above=torch.cat([part.above for part in parts]),
        peak=torch.cat([part.peak for part in parts]),
        pairs=torch.cat([part.pairs for part in parts]),
        weighted_keys=torch.cat(weighted_keys) if weighted_keys else None,
    )


def _tile_shape(query: Tensor, layout: Layout, masking: Masking) -> tuple[int, int]:
    budget = BUDGET.get(query.device.type, WIDE_BUDGET)
    return layout.tile_shape(len(query), max(masking.width, 1), budget)


def _forward(
    query: Tensor,
    positive: Tensor,
    layout: Layout,
    masking: Masking,
    part: slice,
    tile_cols: int,
    stats: bool,
    needs_query_grad: bool,
) -> _PassResult:
    result = _accumulate(query, positive, layout, masking, part, tile_cols, stats, needs_query_grad, clean=False)
    if result.weighted_keys is not None and masking.partial and not bool(torch.isfinite(result.weighted_keys).all()):
        # A masked key is not finite, and 0 * inf reached the sum. Compute again with the masked keys set to 0.
        result = _accumulate(query, positive, layout, masking, part, tile_cols, stats, needs_query_grad, clean=True)
    return result


def _accumulate(
    query: Tensor,
    positive: Tensor,
    layout: Layout,
    masking: Masking,
    part: slice,
    tile_cols: int,
    stats: bool,
    needs_query_grad: bool,
    clean: bool,
) -> _PassResult:
    exact = torch.float32 if query.device.type == "mps" else torch.float64
    sums = torch.zeros(len(query), dtype=exact, device=query.device)
    shift, above, hidden = torch.zeros_like(sums), torch.zeros_like(sums), torch.zeros_like(sums, dtype=torch.int64)
    peak = torch.full_like(positive, -torch.inf)
    neg_shift: Tensor | None = None  # -shift, in the dtype and shape of a block; None while it is 0
    weighted_keys = torch.zeros_like(query) if needs_query_grad else None
    bias, scratch = -positive[:, None], query.new_empty(2, len(query) * tile_cols)
    for cols in block_slices(masking.width, tile_cols):
        allowed = masking.allowed(part, cols)
        correction = masking.log_q_block(part, cols)
        block = layout.block(part, cols, query.dtype, allowed if clean else None)
        raw, powers = scratch[:, : len(query) * _length(cols)].view(2, len(query), -1)
        raw = layout.scores(query, block, bias, out=raw)
        if allowed is not None:
            raw.masked_fill_(~allowed, -torch.inf)
            hidden += (~allowed).sum(1)
        block_sum = _powers(raw, neg_shift, correction, allowed, out=powers).exp2_().sum(1)
        if not float(block_sum.amax()) <= SUM_LIMIT:  # also catches NaN
            increase = _powers(raw, neg_shift, correction, allowed, out=powers).amax(1).ceil_().clamp_(min=0)
            shift += increase
            neg_shift = -shift.to(raw.dtype)[:, None]
            sums *= torch.exp2(-increase)
            if weighted_keys is not None:
                weighted_keys *= torch.exp2(-increase)[:, None]
            block_sum = _powers(raw, neg_shift, correction, allowed, out=powers).exp2_().sum(1)
        sums += block_sum
        if weighted_keys is not None:
            layout.add_to_query_grad(powers, block, weighted_keys)
        if stats:
            peak = torch.maximum(peak, raw.amax(1))
            above += raw.sign_().sum(1)
    return _PassResult(sums, shift, (above + masking.width) / 2, peak, masking.width - hidden, weighted_keys)


def _powers(
    raw: Tensor, neg_shift: Tensor | None, correction: Tensor | None, allowed: Tensor | None, out: Tensor
) -> Tensor:
    """The exponents ``(d - log_q) log2 e - shift``, -inf where masked."""
    if neg_shift is None:
        torch.mul(raw, LOG2E, out=out)
    else:
        torch.add(neg_shift, raw, alpha=LOG2E, out=out)
    if correction is not None:
        out.sub_(correction, alpha=LOG2E)
        if allowed is not None:
            out.masked_fill_(~allowed, -torch.inf)
    return out


def _backward(
    query: Tensor,
    positive: Tensor,
    weighted: Tensor,
    shift: Tensor,
    layout: Layout,
    masking: Masking,
    tile_rows: int,
    tile_cols: int,
) -> Tensor:
    """The gradient of the keys. It computes the scores again, block by block."""
    key_grad = layout.key_grad_buffer(masking.width, query.dtype, once=tile_rows >= len(query))
    neg_shift = -shift.to(query.dtype)[:, None]
    scratch = query.new_empty(2, tile_rows * tile_cols)
    for cols in block_slices(masking.width, tile_cols):
        for part in block_slices(len(query), tile_rows):
            allowed = masking.allowed(part, cols)
            block = layout.block(part, cols, query.dtype, None)
            raw, powers = scratch[:, : _length(part) * _length(cols)].view(2, _length(part), -1)
            raw = layout.scores(query[part], block, -positive[part, None], out=raw)
            if allowed is not None:
                raw.masked_fill_(~allowed, -torch.inf)
            _powers(raw, neg_shift[part], masking.log_q_block(part, cols), allowed, out=powers)
            layout.add_to_key_grad(powers.exp2_(), weighted[part], part, cols, key_grad)
    return key_grad.to(layout.keys.dtype)


def _length(cut: slice) -> int:
    return cut.stop - cut.start

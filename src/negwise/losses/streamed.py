"""Eq. 1 in one pass over blocks of negatives: bounded memory, any device, the win rate on the way.

With ``d_j = f-_j - f+`` (and the correction of ``log_q``), eq. 1 is ``log(1 + S)``, ``S = sum_j e^(d_j)``. Its gradient
with respect to the query is ``sum_j e^(d_j) key_j / (1 + S)`` and with respect to ``f+`` it is ``-S / (1 + S)``: both
accumulate in the same pass, as in attention, so that frozen negatives need no second one. The gradient
of the negatives needs the final S, so a second pass computes the scores again.

The numbers that matter for speed:

- The positive is the reference that attention has to find as a running maximum: no ``d`` is too small for it, since
  the 1 absorbs what underflows. A row moves its reference up only when a block's sum grows out of bounds: one look
  at (R,) numbers per block, and a second try for the few blocks of a run that need it.
- ``2^(d log2 e)`` instead of ``e^d``: torch's vectorised ``exp2`` takes a third of the time of ``exp`` on a CPU.
- ``sum(sign(d))`` counts wins and ties in one go and is exact.

Shapes: B rows, K negatives, D width; R x C a block.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from negwise.errors import NegwiseError
from negwise.losses.kept import apart
from negwise.losses.layout import Layout, slices
from negwise.losses.result import Rows
from negwise.losses.visible import Visible

LOG2E = math.log2(math.e)
OUT_OF_BOUNDS = 2.0**60
"""A block's sum above this moves the reference: far from float32's largest, so that nothing overflows before."""

BUDGET = {"cpu": 2**18}
"""Numbers per block: scores of a block and its keys stay in the cache of a CPU core."""
WIDE_BUDGET = 2**24
"""Numbers per block on an accelerator, where each block costs launches and one wait."""


def rows(query: Tensor, positive: Tensor, layout: Layout, seen: Visible, stats: bool) -> Rows:
    """``query`` (B, D) over temperature, ``positive`` (B,) the positive's score -> the loss of each row."""
    graph = torch.is_grad_enabled()
    loss, wins, pairs = _Streamed.apply(  # type: ignore[no-untyped-call]
        query, positive, layout.keys, layout, seen, stats, graph
    )
    return Rows(loss, wins, pairs) if stats else Rows(loss, None, None)


class _Streamed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        positive: Tensor,
        keys: Tensor,
        layout: Any,  # a Layout; replace() wants to see a dataclass
        seen: Visible,
        stats: bool,
        graph: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        want_pull = graph and ctx.needs_input_grad[0]
        high, wide = _tiles(query, layout, seen)
        done = _join(
            [
                _forward(query[part], positive[part], layout, seen, part, wide, stats, want_pull)
                for part in slices(len(query), high)
            ]
        )
        scale = torch.ones_like(done.sums)
        if seen.log_q is not None:
            scale /= done.pairs.clamp(min=1)
        sums = done.sums * scale
        norm = torch.exp2(-done.shift) + sums
        loss = torch.where(done.shift == 0, torch.log1p(sums), done.shift / LOG2E + torch.log(norm))
        scale = scale / norm
        pull = done.pull if done.pull is None else done.pull.mul_(scale.to(query.dtype)[:, None])
        share = (sums / norm).to(query.dtype)
        if pull is not None:  # as in the reference: what poisons the gradient has to show in the loss
            loss = loss + (pull * 0).sum(1)
        # Frozen negatives are not kept: a queue may be overwritten before backward.
        given, ctx.together = apart(replace(layout, keys=keys), seen) if ctx.needs_input_grad[2] else ([], None)
        again = (query, positive, done.shift, scale) if ctx.needs_input_grad[2] else ()
        ctx.save_for_backward(share, pull, *again, *given)
        ctx.tiles = high, wide
        wins = done.pairs - done.beaten
        ctx.mark_non_differentiable(wins, done.pairs)
        return loss.to(query.dtype), wins, done.pairs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NegwiseError("the streamed loss has no second derivative; pass impl='reference' to info_nce")
        share, pull, *again = ctx.saved_tensors
        need_query, need_positive, need_keys, *rest = ctx.needs_input_grad
        for_query = grad[:, None] * pull if need_query else None
        for_positive = -grad * share if need_positive else None
        for_keys = None
        if need_keys:
            query, positive, shift, scale, *given = again
            weighted = query * (grad * scale).to(query.dtype)[:, None]
            layout, seen = ctx.together(given)
            with torch.autocast(query.device.type, enabled=False):
                for_keys = _backward(query, positive, weighted, shift, layout, seen, *ctx.tiles)
        return (for_query, for_positive, for_keys, *([None] * len(rest)))


class _Done(NamedTuple):
    """What a pass leaves behind; the true sum is ``sums * 2^shift``, and ``pull`` likewise."""

    sums: Tensor  # (R,) wide: of 2^(d log2 e - shift)
    shift: Tensor  # (R,) wide: a whole number, so that moving it is exact
    beaten: Tensor  # (R,) wide: negatives above the positive, ties half
    pairs: Tensor  # (R,) int64
    pull: Tensor | None  # (R, D): sum_j 2^(d_j log2 e - shift) key_j


def _join(parts: list[_Done]) -> _Done:
    if len(parts) == 1:
        return parts[0]
    pulls = [part.pull for part in parts if part.pull is not None]
    return _Done(
        sums=torch.cat([part.sums for part in parts]),
        shift=torch.cat([part.shift for part in parts]),
        beaten=torch.cat([part.beaten for part in parts]),
        pairs=torch.cat([part.pairs for part in parts]),
        pull=torch.cat(pulls) if pulls else None,
    )


def _tiles(query: Tensor, layout: Layout, seen: Visible) -> tuple[int, int]:
    budget = BUDGET.get(query.device.type, WIDE_BUDGET)
    return layout.tiles(len(query), max(seen.width, 1), budget)


def _forward(
    query: Tensor,
    positive: Tensor,
    layout: Layout,
    seen: Visible,
    part: slice,
    wide: int,
    stats: bool,
    want_pull: bool,
) -> _Done:
    done = _sweep(query, positive, layout, seen, part, wide, stats, want_pull, clean=False)
    if done.pull is not None and seen.partial and not bool(torch.isfinite(done.pull).all()):
        # A masked key that is not finite: 0 * inf reached the sum. Look again with those keys blanked.
        done = _sweep(query, positive, layout, seen, part, wide, stats, want_pull, clean=True)
    return done


def _sweep(
    query: Tensor,
    positive: Tensor,
    layout: Layout,
    seen: Visible,
    part: slice,
    wide: int,
    stats: bool,
    want_pull: bool,
    clean: bool,
) -> _Done:
    exact = torch.float32 if query.device.type == "mps" else torch.float64
    sums = torch.zeros(len(query), dtype=exact, device=query.device)
    shift, above, hidden = torch.zeros_like(sums), torch.zeros_like(sums), torch.zeros_like(sums, dtype=torch.int64)
    low: Tensor | None = None  # -shift as the blocks want it, None while it is zero
    pull = torch.zeros_like(query) if want_pull else None
    bias, scratch = -positive[:, None], query.new_empty(2, len(query) * wide)
    for cols in slices(seen.width, wide):
        allowed = seen.allowed(part, cols)
        correction = seen.correction(part, cols)
        block = layout.block(part, cols, query.dtype, allowed if clean else None)
        raw, powers = scratch[:, : len(query) * _length(cols)].view(2, len(query), -1)
        raw = layout.scores(query, block, bias, out=raw)
        if allowed is not None:
            raw.masked_fill_(~allowed, -torch.inf)
            hidden += (~allowed).sum(1)
        found = _powers(raw, low, correction, allowed, out=powers).exp2_().sum(1)
        if not float(found.amax()) <= OUT_OF_BOUNDS:  # nor NaN
            rise = _powers(raw, low, correction, allowed, out=powers).amax(1).ceil_().clamp_(min=0)
            shift += rise
            low = -shift.to(raw.dtype)[:, None]
            sums *= torch.exp2(-rise)
            if pull is not None:
                pull *= torch.exp2(-rise)[:, None]
            found = _powers(raw, low, correction, allowed, out=powers).exp2_().sum(1)
        sums += found
        if pull is not None:
            layout.pull(powers, block, pull)
        if stats:
            above += raw.sign_().sum(1)
    return _Done(sums, shift, (above + seen.width) / 2, seen.width - hidden, pull)


def _powers(raw: Tensor, low: Tensor | None, correction: Tensor | None, allowed: Tensor | None, out: Tensor) -> Tensor:
    """``(d - log_q) log2 e - shift``, -inf where not allowed."""
    if low is None:
        torch.mul(raw, LOG2E, out=out)
    else:
        torch.add(low, raw, alpha=LOG2E, out=out)
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
    seen: Visible,
    high: int,
    wide: int,
) -> Tensor:
    """The gradient of the keys: scores again, block by block."""
    onto = layout.gradient(seen.width, query.dtype, once=high >= len(query))
    low = -shift.to(query.dtype)[:, None]
    scratch = query.new_empty(2, high * wide)
    for cols in slices(seen.width, wide):
        for part in slices(len(query), high):
            allowed = seen.allowed(part, cols)
            block = layout.block(part, cols, query.dtype, None)
            raw, powers = scratch[:, : _length(part) * _length(cols)].view(2, _length(part), -1)
            raw = layout.scores(query[part], block, -positive[part, None], out=raw)
            if allowed is not None:
                raw.masked_fill_(~allowed, -torch.inf)
            _powers(raw, low[part], seen.correction(part, cols), allowed, out=powers)
            layout.push(powers.exp2_(), weighted[part], part, cols, onto)
    return onto.to(layout.keys.dtype)


def _length(cut: slice) -> int:
    return cut.stop - cut.start

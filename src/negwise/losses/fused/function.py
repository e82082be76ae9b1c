"""The kernels as one differentiable function of query, positive, keys and temperature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from negwise.errors import NegwiseError
from negwise.losses.fused import late, lookup, product, tally
from negwise.losses.fused.given import NOTHING, Heat, Hidden
from negwise.losses.fused.steps import turned
from negwise.losses.kept import apart
from negwise.losses.layout import Drawn, Keys, Layout, PerRow, Shared, Table, Tallied
from negwise.losses.result import Rows
from negwise.losses.visible import Visible
from negwise.protocols import Draw


def rows(
    query: Tensor, positive: Tensor, temperature: float | Tensor, layout: Keys, seen: Visible, stats: bool
) -> Rows:
    """``query`` and ``positive`` (B, D) as they came -> the loss of each row, with its gradient, in a few launches."""
    late.raise_late()
    heat = temperature if isinstance(temperature, Tensor) else None
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]  # Triton launches there; so does autograd
        loss, wins, pairs = _Fused.apply(  # type: ignore[no-untyped-call]
            query, positive, layout.keys, heat, temperature, layout, seen, stats, torch.is_grad_enabled()
        )
    return Rows(loss, wins, pairs) if stats else Rows(loss, None, None)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        positive: Tensor,
        keys: Tensor,
        temperature: Tensor | None,
        number: float,
        layout: Keys,
        seen: Visible,
        stats: bool,
        graph: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        own, other, table = query.contiguous(), positive.contiguous(), keys.contiguous()
        heat, hidden = Heat.of(number if temperature is None else temperature, query), Hidden.of(seen)
        need_query, _, need_keys, need_heat, *_ = ctx.needs_input_grad
        pull, train = graph and (need_query or need_heat), graph and need_keys
        taken = None
        if isinstance(layout, Shared):
            batch = keys is positive
            done = product.forward(own, other, table, heat, hidden, seen.width, stats, pull, batch)
        elif isinstance(layout, Tallied):
            taken = tally.times(table, layout.ids, hidden, len(own), seen.width)
            done = product.forward(own, other, table, heat, NOTHING, len(table), stats, pull, False, taken)
        else:
            done, taken = lookup.forward(own, other, table, _ids(layout), heat, hidden, seen.width, stats, pull, train)
        # Frozen negatives are not kept: a queue may be overwritten before backward.
        given, ctx.together = apart(hidden) if train else ([], None)
        again = (keys, *given) if train else ()
        ctx.save_for_backward(query, done.kept, done.units, taken if train else None, temperature, *again)
        ctx.heat, ctx.width, ctx.kind = heat, seen.width, type(layout)
        ctx.other = positive.dtype
        ctx.mark_non_differentiable(done.wins, done.pairs)
        return done.loss, done.wins, done.pairs

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NegwiseError("the fused loss has no second derivative; pass impl='reference' to info_nce")
        late.raise_late()
        query, kept, units, taken, temperature, *again = ctx.saved_tensors
        need_query, need_positive, need_keys, need_heat, *rest = ctx.needs_input_grad
        own, grad = query.contiguous(), grad.contiguous()
        for_query, for_positive, rates = turned(
            own, grad, kept, units, ctx.heat,
            query.dtype if need_query else None, ctx.other if need_positive else None, need_keys,
        )  # fmt: skip
        for_keys = for_heat = None
        if need_keys:
            assert rates is not None
            keys, *given = again
            table, (hidden,) = keys.contiguous(), ctx.together(given)
            if ctx.kind is Shared:
                for_keys = product.backward_keys(own, table, ctx.width, kept, rates, ctx.heat, hidden)
            elif ctx.kind is Tallied:
                for_keys = product.backward_keys(own, table, len(table), kept, rates, ctx.heat, NOTHING, taken)
            else:
                ids = ctx.kind is not PerRow
                for_keys = lookup.backward_keys(own, table, ids, taken, kept, rates, ctx.heat, hidden)
        if need_heat:  # every score is q . k / T, so dT = -(q . dq) / T
            each = -grad * (own.float() * units).sum(1) / temperature.reshape(-1).to(grad)
            for_heat = (each if ctx.heat.step else each.sum()).reshape(temperature.shape).to(temperature)
        return (for_query, for_positive, for_keys, for_heat, *([None] * len(rest)))


def _ids(layout: Layout | Drawn) -> Tensor | Draw | None:
    """What says which rows of the keys are read; None where each row has its own."""
    if isinstance(layout, Drawn):
        return layout.draw
    return layout.ids.contiguous() if isinstance(layout, Table) else None

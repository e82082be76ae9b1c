"""The kernels as one autograd function of query, positive, keys and temperature."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from negwise.errors import NegwiseError
from negwise.losses.fused.arguments import NO_MASK, MaskArguments, Temperature
from negwise.losses.fused.counted import count_ids
from negwise.losses.fused.deferred_errors import raise_deferred_errors
from negwise.losses.fused.lookup import lookup_backward, lookup_forward
from negwise.losses.fused.product import product_backward, product_forward
from negwise.losses.fused.softmax_parts import scale_gradients
from negwise.losses.layout import CountedKeys, DrawnKeys, Keys, Layout, PerRowKeys, SharedKeys, TableKeys
from negwise.losses.masking import Masking
from negwise.losses.result import RowLosses
from negwise.losses.saved_tensors import split_tensors
from negwise.protocols import Draw


def kernel_losses(
    query: Tensor, positive: Tensor, temperature: float | Tensor, layout: Keys, masking: Masking, stats: bool
) -> RowLosses:
    """The loss of each row, from ``query`` and ``positive`` (B, D). It has a gradient, and takes a few launches."""
    raise_deferred_errors()
    tensor = temperature if isinstance(temperature, Tensor) else None
    with torch.cuda.device_of(query):  # type: ignore[no-untyped-call]  # Triton launches on the current device; autograd sets it for backward
        loss, wins, pairs, hits = _Fused.apply(  # type: ignore[no-untyped-call]
            query, positive, layout.keys, tensor, temperature, layout, masking, stats, torch.is_grad_enabled()
        )
    return RowLosses(loss, wins, pairs, hits) if stats else RowLosses(loss)


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
        masking: Masking,
        stats: bool,
        graph: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        own, other, table = query.contiguous(), positive.contiguous(), keys.contiguous()
        temperatures = Temperature.of(number if temperature is None else temperature, query)
        masks = MaskArguments.of(masking)
        need_query, _, need_keys, need_temperature, *_ = ctx.needs_input_grad
        query_grad, key_grad = graph and (need_query or need_temperature), graph and need_keys
        used = None  # ids or their counts, for the gradient of the keys
        if isinstance(layout, SharedKeys):
            in_batch = keys is positive
            result = product_forward(own, other, table, temperatures, masks, masking.width, stats, query_grad, in_batch)
        elif isinstance(layout, CountedKeys):
            used = count_ids(table, layout.ids, masks, len(own), masking.width)
            result = product_forward(
                own, other, table, temperatures, NO_MASK, len(table), stats, query_grad, False, used
            )
        else:
            result, used = lookup_forward(
                own, other, table, _ids(layout), temperatures, masks, masking.width, stats, query_grad, key_grad
            )
        # Frozen negatives are not saved, so that a queue may be overwritten before the backward pass.
        tensors, ctx.rebuild = split_tensors(masks) if key_grad else ([], None)
        for_keys = (keys, *tensors) if key_grad else ()
        ctx.save_for_backward(
            query, result.saved, result.unit_grads, used if key_grad else None, temperature, *for_keys
        )
        ctx.temperatures, ctx.width, ctx.kind = temperatures, masking.width, type(layout)
        ctx.positive_dtype = positive.dtype
        ctx.mark_non_differentiable(result.wins, result.pairs, result.hits)
        return result.loss, result.wins, result.pairs, result.hits

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NegwiseError("the fused loss has no second derivative; pass impl='reference' to info_nce")
        raise_deferred_errors()
        query, saved, unit_grads, used, temperature, *read_again = ctx.saved_tensors
        need_query, need_positive, need_keys, need_temperature, *rest = ctx.needs_input_grad
        own, grad = query.contiguous(), grad.contiguous()
        for_query, for_positive, rates = scale_gradients(
            own, grad, saved, unit_grads, ctx.temperatures,
            query.dtype if need_query else None, ctx.positive_dtype if need_positive else None, need_keys,
        )  # fmt: skip
        for_keys = for_temperature = None
        if need_keys:
            assert rates is not None
            keys, *tensors = read_again
            table, (masks,) = keys.contiguous(), ctx.rebuild(tensors)
            if ctx.kind is SharedKeys:
                for_keys = product_backward(own, table, ctx.width, saved, rates, ctx.temperatures, masks)
            elif ctx.kind is CountedKeys:
                for_keys = product_backward(own, table, len(table), saved, rates, ctx.temperatures, NO_MASK, used)
            else:
                ids = ctx.kind is not PerRowKeys
                for_keys = lookup_backward(own, table, ids, used, saved, rates, ctx.temperatures, masks)
        if need_temperature:  # every score is q . k / T, so dT = -(q . dq) / T
            each = -grad * (own.float() * unit_grads).sum(1) / temperature.reshape(-1).to(grad)
            for_temperature = (
                (each if ctx.temperatures.stride else each.sum()).reshape(temperature.shape).to(temperature)
            )
        return (for_query, for_positive, for_keys, for_temperature, *([None] * len(rest)))


def _ids(layout: Layout | DrawnKeys) -> Tensor | Draw | None:
    """The ids to look up, or None if each row has its own keys."""
    if isinstance(layout, DrawnKeys):
        return layout.draw
    return layout.ids.contiguous() if isinstance(layout, TableKeys) else None

"""Launches the kernels of `lookup_kernels`: negatives of each row's own, (B, K, D), or a table by ids, given or drawn.

Memory beside inputs and gradients: (B, D) numbers for the query's gradient. If a table requires a gradient, also (B, K)
ids and their sort order, and a begin and an end for each of its rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from negwise.losses.fused import deferred_errors
from negwise.losses.fused.arguments import MaskArguments, Temperature, next_power_of_two, processors
from negwise.losses.fused.drawn_ids import DrawArguments, key_words
from negwise.losses.fused.lookup_kernels import (
    lookup_forward_kernel,
    mark_runs_kernel,
    per_row_gradient_kernel,
    sum_runs_kernel,
    table_gradient_kernel,
)
from negwise.losses.fused.softmax_parts import ForwardResult, merge_parts
from negwise.protocols import Draw

TILE = 8192
"""Bytes of a tile of keys per warp: 64 registers of each thread, and as many for the tile that is being loaded."""
RUN = 256
"""Positions of a sorted run that are summed at once. Longer runs are split over several programs."""


def lookup_forward(
    query: Tensor, positive: Tensor, keys: Tensor, ids: Tensor | Draw | None, temperature: Temperature,
    masks: MaskArguments, width: int, stats: bool, query_grad: bool, keep_ids: bool,
) -> tuple[ForwardResult, Tensor | None]:  # fmt: skip
    """The results of the rows. With ``keep_ids`` also the ids that were read, (B, K) int32; M where masked."""
    rows, depth = query.shape
    block_d, warps, block_k = _tile(keys, width)
    splits = max(1, min(processors(query.device) * 16 // rows, width // 256))
    span = -(-width // splits)
    parts = query.new_empty(8, splits, rows, dtype=torch.float32)
    accs = query.new_empty(splits, rows, depth, dtype=torch.float32) if query_grad else None
    used_ids = torch.empty(rows, width, dtype=torch.int32, device=query.device) if keep_ids else None
    id_tensor, source, words = (
        (None, DrawArguments.of(ids), key_words(ids)) if isinstance(ids, Draw) else (ids, None, (0, 0, 0))
    )
    lookup_forward_kernel[(rows, splits)](
        query, positive, keys, id_tensor, source, *words, masks.mask, masks.counts, masks.row_ids,
        None if ids is not None else masks.key_ids, masks.log_q, temperature.tensor, temperature.number,
        parts, accs, used_ids, deferred_errors.error_slots(query.device), rows, width,
        len(keys) if ids is not None else 1, span,
        D=depth, BLOCK_K=block_k, BLOCK_D=block_d, STRIDE=temperature.stride, PER_ROW_Q=masks.per_row_q,
        STATS=stats, QUERY_GRAD=query_grad, DRAWN=source is not None, num_warps=warps,
    )  # fmt: skip
    return merge_parts(positive, temperature, parts, accs, masks.log_q is not None), used_ids


def lookup_backward(
    query: Tensor,
    keys: Tensor,
    ids: bool,
    used_ids: Tensor,
    saved: Tensor,
    rates: Tensor,
    temperature: Temperature,
    masks: MaskArguments,
) -> Tensor:
    """The gradient of the keys, in their dtype. It is summed in float32, with the same bits each time."""
    rows, width = used_ids.shape
    depth = query.shape[1]
    block_d, warps, block_k = _tile(keys, width)
    out = torch.empty_like(keys)
    common: dict[str, Any] = {
        "D": depth,
        "BLOCK_D": block_d,
        "STRIDE": temperature.stride,
        "PER_ROW_Q": masks.per_row_q,
    }
    of_rows = (query, saved, rates, temperature.tensor, temperature.number, masks.log_q)
    if not ids:
        grid = (rows, -(-width // block_k))
        per_row_gradient_kernel[grid](keys, used_ids, *of_rows, out, width, BLOCK_K=block_k, **common, num_warps=warps)
        return out
    size, places = len(keys), rows * width
    if not size:
        return out
    flat, order = torch.sort(used_ids.view(-1))
    edges = torch.zeros(2, size + 1, dtype=torch.int32, device=query.device)
    mark_runs_kernel[(-(-places // 1024),)](flat, edges[0], edges[1], places, BLOCK=1024)
    sums = query.new_empty(places // RUN, depth, dtype=torch.float32)
    common |= {"BLOCK": max(2, min(block_k, 8, next_power_of_two(places // size))), "RUN": RUN, "num_warps": warps}
    if len(sums):
        sum_runs_kernel[(len(sums),)](keys, flat, order, *of_rows, sums, width, size, **common)
    programs = min(size, 64 * processors(query.device))
    table_gradient_kernel[(programs,)](keys, edges[0], edges[1], order, *of_rows, sums, out, width, size, **common)
    return out


def _tile(keys: Tensor, width: int) -> tuple[int, int, int]:
    """The width of a tile, its warps, and its number of keys."""
    block_d = max(16, next_power_of_two(keys.shape[-1]))
    warps = max(1, min(8, block_d // 256))
    most = max(4, min(64, warps * TILE // (block_d * keys.element_size())))
    return block_d, warps, min(most, max(4, next_power_of_two(width)))

"""Launches the kernels of `product_kernels`: negatives that all rows share, such as in-batch negatives.

Memory beside inputs and gradients: (B, D) numbers, and as many again for each part that K is split into.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.losses.fused import deferred_errors
from negwise.losses.fused.arguments import MaskArguments, Temperature, next_power_of_two, processors
from negwise.losses.fused.product_kernels import product_backward_kernel, product_forward_kernel
from negwise.losses.fused.softmax_parts import ForwardResult, merge_parts

MAX_EXACT_SUM = 256
"""Up to this many products, a sum is as exact as the reference's (measured). Tensor cores truncate the sum a little at
each step, and float32 rounds it."""


def product_forward(
    query: Tensor, positive: Tensor, keys: Tensor, temperature: Temperature, masks: MaskArguments,
    width: int, stats: bool, query_grad: bool, in_batch: bool, key_counts: Tensor | None = None,
) -> ForwardResult:  # fmt: skip
    """The results of the rows. ``in_batch``: the keys are the positives. ``key_counts`` (B, K): copies of each key."""
    rows, depth = query.shape
    block_b, block_k, block_d, warps, stages = _tile(query, keys)
    tiles = -(-rows // block_b)
    span, splits = _split(width, block_k, tiles, query.device)
    parts = query.new_empty(8, splits, rows, dtype=torch.float32)
    accs = query.new_empty(splits, rows, depth, dtype=torch.float32) if query_grad else None
    partial = masks.partial or key_counts is not None
    product_forward_kernel[(tiles, splits)](
        query, positive, keys, key_counts, masks.mask, masks.counts, masks.row_ids, masks.key_ids, masks.log_q,
        temperature.tensor, temperature.number, parts, accs, deferred_errors.error_slots(query.device),
        rows, width, span,
        D=depth, BLOCK_B=block_b, BLOCK_K=block_k, BLOCK_D=block_d, PART=_part(block_d, query, keys),
        STRIDE=temperature.stride, PER_ROW_Q=masks.per_row_q, STATS=stats, QUERY_GRAD=query_grad,
        DENSE=not partial, CLEAN=partial and not in_batch, OWN=masks.exclude_diagonal,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return merge_parts(positive, temperature, parts, accs, masks.log_q is not None)


def product_backward(
    query: Tensor, keys: Tensor, width: int, saved: Tensor, rates: Tensor, temperature: Temperature,
    masks: MaskArguments, key_counts: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of the keys, in their dtype. It is summed in float32, with the same bits each time."""
    rows, depth = query.shape
    if not width:
        return torch.empty_like(keys)
    block_b, block_k, block_d, warps, stages = _tile_back(query, keys)
    tiles = -(-width // block_k)
    span, splits = _split(rows, block_b, tiles, query.device)
    dtype = keys.dtype if splits == 1 else torch.float32
    out = torch.empty(splits, width, depth, dtype=dtype, device=query.device)
    product_backward_kernel[(tiles, splits)](
        query, keys, key_counts, masks.mask, masks.counts, masks.row_ids, masks.key_ids, masks.log_q,
        temperature.tensor, temperature.number, saved, rates, out, rows, width, span,
        D=depth, BLOCK_B=block_b, BLOCK_K=block_k, BLOCK_D=block_d, PART=_part(block_d, query, keys),
        STRIDE=temperature.stride, PER_ROW_Q=masks.per_row_q, DENSE=not masks.partial and key_counts is None,
        OWN=masks.exclude_diagonal, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out[0] if splits == 1 else out.sum(0).to(keys.dtype)


def _split(total: int, block: int, others: int, device: torch.device) -> tuple[int, int]:
    """The span of one program, in whole blocks, and the number of programs: enough to fill the GPU, none too short."""
    blocks = -(-total // block)
    wanted = max(1, min(processors(device) * 2 // others, -(-blocks // 4)))
    span = max(1, -(-blocks // wanted))
    return span * block, max(1, -(-blocks // span))


def _part(block_d: int, query: Tensor, keys: Tensor) -> int:
    """The columns of a score that are summed at once: all, or fewer if all would be less exact."""
    if block_d <= MAX_EXACT_SUM:
        return block_d
    return 128 if query.dtype == keys.dtype and query.element_size() == 2 else 64


def _tile(query: Tensor, keys: Tensor) -> tuple[int, int, int, int, int]:
    """Rows, keys and width of a tile, its warps and pipeline stages. A program keeps its rows and loops over keys."""
    block_d = max(16, next_power_of_two(query.shape[1]))
    if query.dtype == keys.dtype and query.element_size() == 2:
        if block_d <= 128:
            return 64, 128 if query.dtype == torch.bfloat16 else 64, block_d, 4, 3
        return {256: (64, 32, 256, 4, 3), 512: (64, 32, 512, 8, 2)}.get(block_d, (32, 32, block_d, 8, 1))
    if block_d <= 128:
        return 32, 32, block_d, 8, 2
    return {256: (16, 32, 256, 8, 2)}.get(block_d, (16, 16, block_d, 8, 1))


def _tile_back(query: Tensor, keys: Tensor) -> tuple[int, int, int, int, int]:
    """The same for a program that keeps its keys and loops over rows."""
    stay, passing, block_d, warps, stages = _tile(query, keys)
    return min(passing, 64), stay, block_d, warps, stages

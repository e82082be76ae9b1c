"""Negatives that all rows share, the batch itself among them: launching the kernels of `product_kernels`.

Beside inputs and gradients there are (B, D) numbers in memory, and as much again for each part that K is split into.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.losses.fused import late
from negwise.losses.fused.given import Heat, Hidden, power_of_two, processors
from negwise.losses.fused.product_kernels import multiply, multiply_back
from negwise.losses.fused.steps import Settled, settled

LONGEST = 256
"""Products that are added up in one go and are as exact as the reference's (measured): tensor cores cut off what they
add up, a little per step, and float32 is rounded at each."""


def forward(
    query: Tensor, positive: Tensor, keys: Tensor, heat: Heat, hidden: Hidden,
    width: int, stats: bool, pull: bool, batch: bool, times: Tensor | None = None,
) -> Settled:  # fmt: skip
    """The rows' results; ``batch``: the keys are the positives; ``times`` (B, K): how often each row has each key."""
    rows, depth = query.shape
    block_b, block_k, block_d, warps, stages = _tile(query, keys)
    tiles = -(-rows // block_b)
    span, splits = _split(width, block_k, tiles, query.device)
    parts = query.new_empty(7, splits, rows, dtype=torch.float32)
    pulls = query.new_empty(splits, rows, depth, dtype=torch.float32) if pull else None
    partial = hidden.partial or times is not None
    multiply[(tiles, splits)](
        query, positive, keys, times, hidden.mask, hidden.counts, hidden.row_ids, hidden.key_ids, hidden.log_q,
        heat.tensor, heat.number, parts, pulls, late.notes(query.device), rows, width, span,
        D=depth, BLOCK_B=block_b, BLOCK_K=block_k, BLOCK_D=block_d, PART=_part(block_d, query, keys),
        STEP=heat.step, PER_ROW_Q=hidden.per_row_q, STATS=stats, PULL=pull,
        DENSE=not partial, CLEAN=partial and not batch, OWN=hidden.own, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return settled(positive, heat, parts, pulls, hidden.log_q is not None)


def backward_keys(
    query: Tensor, keys: Tensor, width: int, kept: Tensor, rates: Tensor, heat: Heat, hidden: Hidden,
    times: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of the keys, in their dtype, added up in float32, the same bits each time."""
    rows, depth = query.shape
    if not width:
        return torch.empty_like(keys)
    block_b, block_k, block_d, warps, stages = _tile_back(query, keys)
    tiles = -(-width // block_k)
    span, splits = _split(rows, block_b, tiles, query.device)
    dtype = keys.dtype if splits == 1 else torch.float32
    onto = torch.empty(splits, width, depth, dtype=dtype, device=query.device)
    multiply_back[(tiles, splits)](
        query, keys, times, hidden.mask, hidden.counts, hidden.row_ids, hidden.key_ids, hidden.log_q,
        heat.tensor, heat.number, kept, rates, onto, rows, width, span,
        D=depth, BLOCK_B=block_b, BLOCK_K=block_k, BLOCK_D=block_d, PART=_part(block_d, query, keys),
        STEP=heat.step, PER_ROW_Q=hidden.per_row_q, DENSE=not hidden.partial and times is None, OWN=hidden.own,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return onto[0] if splits == 1 else onto.sum(0).to(keys.dtype)


def _split(total: int, block: int, others: int, device: torch.device) -> tuple[int, int]:
    """How far one program walks, whole blocks of it, and how many walk: enough to fill the GPU, none too short."""
    blocks = -(-total // block)
    wanted = max(1, min(processors(device) * 2 // others, -(-blocks // 4)))
    span = max(1, -(-blocks // wanted))
    return span * block, max(1, -(-blocks // span))


def _part(block_d: int, query: Tensor, keys: Tensor) -> int:
    """Columns of a score that are added up in one go: all of them, or few where all would be less exact."""
    if block_d <= LONGEST:
        return block_d
    return 128 if query.dtype == keys.dtype and query.element_size() == 2 else 64


def _tile(query: Tensor, keys: Tensor) -> tuple[int, int, int, int, int]:
    """Rows, keys and width of a tile, its warps, and how many tiles are fetched ahead; the rows stay, the keys pass."""
    block_d = max(16, power_of_two(query.shape[1]))
    if query.dtype == keys.dtype and query.element_size() == 2:
        if block_d <= 128:
            return 64, 128 if query.dtype == torch.bfloat16 else 64, block_d, 4, 3
        return {256: (64, 32, 256, 4, 3), 512: (64, 32, 512, 8, 2)}.get(block_d, (32, 32, block_d, 8, 1))
    if block_d <= 128:
        return 32, 32, block_d, 8, 2
    return {256: (16, 32, 256, 8, 2)}.get(block_d, (16, 16, block_d, 8, 1))


def _tile_back(query: Tensor, keys: Tensor) -> tuple[int, int, int, int, int]:
    """The same where the keys stay and the rows pass."""
    stay, passing, block_d, warps, stages = _tile(query, keys)
    return min(passing, 64), stay, block_d, warps, stages

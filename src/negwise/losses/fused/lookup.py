"""Negatives of each row's own, (B, K, D) or a table by ids, given or drawn: launching the kernels of `lookup_kernels`.

Beside inputs and gradients there are, in memory: (B, D) numbers for the query's gradient; where a table wants a
gradient, (B, K) ids and their order when sorted, and a beginning and an end for each of its rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from negwise.losses.fused import late
from negwise.losses.fused.draw import Source, key_words
from negwise.losses.fused.given import Heat, Hidden, power_of_two, processors
from negwise.losses.fused.lookup_kernels import collect, look_up, mark_runs, spread, sum_runs
from negwise.losses.fused.steps import Settled, settled
from negwise.protocols import Draw

TILE = 8192
"""Bytes of a tile of keys, per warp: 64 of a thread's registers, and as many for the tile on its way."""
RUN = 256
"""Places of a sorted run that are summed at once; longer runs are spread over several programs."""


def forward(
    query: Tensor, positive: Tensor, keys: Tensor, ids: Tensor | Draw | None, heat: Heat, hidden: Hidden,
    width: int, stats: bool, pull: bool, keep: bool,
) -> tuple[Settled, Tensor | None]:  # fmt: skip
    """The rows' results; with ``keep`` also which ids were read, (B, K) int32, one beyond the last where none was."""
    rows, depth = query.shape
    block_d, warps, block_k = _tile(keys, width)
    splits = max(1, min(processors(query.device) * 16 // rows, width // 256))
    span = -(-width // splits)
    parts = query.new_empty(7, splits, rows, dtype=torch.float32)
    pulls = query.new_empty(splits, rows, depth, dtype=torch.float32) if pull else None
    taken = torch.empty(rows, width, dtype=torch.int32, device=query.device) if keep else None
    listed, source, words = (None, Source.of(ids), key_words(ids)) if isinstance(ids, Draw) else (ids, None, (0, 0, 0))
    look_up[(rows, splits)](
        query, positive, keys, listed, source, *words, hidden.mask, hidden.counts, hidden.row_ids,
        None if ids is not None else hidden.key_ids, hidden.log_q, heat.tensor, heat.number,
        parts, pulls, taken, late.notes(query.device), rows, width, len(keys) if ids is not None else 1, span,
        D=depth, BLOCK_K=block_k, BLOCK_D=block_d, STEP=heat.step, PER_ROW_Q=hidden.per_row_q,
        STATS=stats, PULL=pull, DRAWN=source is not None, num_warps=warps,
    )  # fmt: skip
    return settled(positive, heat, parts, pulls, hidden.log_q is not None), taken


def backward_keys(
    query: Tensor, keys: Tensor, ids: bool, taken: Tensor, kept: Tensor, rates: Tensor, heat: Heat, hidden: Hidden
) -> Tensor:
    """The gradient of the keys, in their dtype, added up in float32, the same bits each time."""
    rows, width = taken.shape
    depth = query.shape[1]
    block_d, warps, block_k = _tile(keys, width)
    onto = torch.empty_like(keys)
    common: dict[str, Any] = {"D": depth, "BLOCK_D": block_d, "STEP": heat.step, "PER_ROW_Q": hidden.per_row_q}
    of_rows = (query, kept, rates, heat.tensor, heat.number, hidden.log_q)
    if not ids:
        grid = (rows, -(-width // block_k))
        spread[grid](keys, taken, *of_rows, onto, width, BLOCK_K=block_k, **common, num_warps=warps)
        return onto
    size, places = len(keys), rows * width
    if not size:
        return onto
    flat, order = torch.sort(taken.view(-1))
    edges = torch.zeros(2, size + 1, dtype=torch.int32, device=query.device)
    mark_runs[(-(-places // 1024),)](flat, edges[0], edges[1], places, BLOCK=1024)
    sums = query.new_empty(places // RUN, depth, dtype=torch.float32)
    common |= {"BLOCK": max(2, min(block_k, 8, power_of_two(places // size))), "RUN": RUN, "num_warps": warps}
    if len(sums):
        sum_runs[(len(sums),)](keys, flat, order, *of_rows, sums, width, size, **common)
    programs = min(size, 64 * processors(query.device))
    collect[(programs,)](keys, edges[0], edges[1], order, *of_rows, sums, onto, width, size, **common)
    return onto


def _tile(keys: Tensor, width: int) -> tuple[int, int, int]:
    """Width of a tile, its warps, and how many keys it has."""
    block_d = max(16, power_of_two(keys.shape[-1]))
    warps = max(1, min(8, block_d // 256))
    most = max(4, min(64, warps * TILE // (block_d * keys.element_size())))
    return block_d, warps, min(most, max(4, power_of_two(width)))

"""The steps that every layout shares: merge the parts of each row, and turn an upstream gradient into the rows' own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from negwise.losses.fused import late
from negwise.losses.fused.given import Heat, power_of_two
from negwise.losses.fused.online import settle, turn


class Settled(NamedTuple):
    """What a forward pass leaves behind."""

    loss: Tensor  # (B,) float32
    wins: Tensor  # (B,) float64
    pairs: Tensor  # (B,) int64
    kept: Tensor  # (3, B): see `settle`
    units: Tensor | None  # (B, D): d loss / d query


def settled(positive: Tensor, heat: Heat, parts: Tensor, pulls: Tensor | None, corrected: bool) -> Settled:
    """Merge ``parts`` (7, S, B) and ``pulls`` (S, B, D)."""
    rows, depth = positive.shape
    splits = parts.shape[1]
    loss, kept = parts.new_empty(rows), parts.new_empty(3, rows)
    wins = parts.new_empty(rows, dtype=torch.float64)
    pairs = parts.new_empty(rows, dtype=torch.int64)
    block_d = power_of_two(depth)
    units = pulls
    if pulls is not None:  # written over the only part; several are not kept in memory
        units = pulls[0] if splits == 1 else parts.new_empty(rows, depth)
    settle[(rows,)](
        positive, heat.tensor, heat.number, parts, pulls, units, loss, wins, pairs, kept, late.notes(positive.device),
        rows, splits, D=depth, BLOCK_D=block_d, BLOCK_S=power_of_two(splits), CHUNK=min(8, power_of_two(splits)),
        STEP=heat.step, CORRECTED=corrected, PULL=pulls is not None, num_warps=max(1, min(4, block_d // 128)),
    )  # fmt: skip
    return Settled(loss, wins, pairs, kept, units)


def turned(
    query: Tensor, grad: Tensor, kept: Tensor, units: Tensor | None, heat: Heat,
    for_query: torch.dtype | None, for_positive: torch.dtype | None, for_keys: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of query and positive in the dtypes asked for, and the keys' rates, each None where not wanted."""
    rows, depth = query.shape
    ours = None if for_query is None else torch.empty_like(query, dtype=for_query)
    theirs = None if for_positive is None else torch.empty_like(query, dtype=for_positive)
    rates = kept.new_empty(rows) if for_keys else None
    block_d = power_of_two(depth)
    turn[(rows,)](
        query, units, grad, kept, heat.tensor, heat.number, ours, theirs, rates, rows,
        D=depth, BLOCK_D=block_d, STEP=heat.step, num_warps=max(1, min(4, block_d // 128)),
    )  # fmt: skip
    return ours, theirs, rates

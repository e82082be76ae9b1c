"""A `Draw` in the form that the kernels read, and all of its ids in one launch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from negwise.draws.random_words import LOW
from negwise.losses.fused.arguments import next_power_of_two
from negwise.losses.fused.drawn_ids_kernels import draw_all_kernel
from negwise.protocols import Draw

BLOCK = 256
"""Most slots that one program draws."""


class DrawArguments(NamedTuple):
    """All that a draw's ids depend on, except seed and step.

    Triton recompiles a kernel for some values of the integers in a tuple. So integers that change from step to step
    are passed separately.
    """

    numbers: Tensor  # (B,) int64, as the next three
    positives: Tensor
    owners: Tensor
    allowed: Tensor
    columns: Tensor | None  # this and the next as in `negwise.protocols.SamplingTables`
    starts: Tensor | None
    bits: Tensor | None
    offsets: Tensor | None
    keys: Tensor | None  # None without exclusions
    spent: Tensor | None
    when: Tensor | None
    items: int
    shift: int  # of a 32-bit word, so that the column of the alias table is left
    stream: int  # shifted to its bits in the counter
    max_redraws: int

    @classmethod
    def of(cls, draw: Draw) -> DrawArguments:
        tables = draw.tables(draw.device)
        known = len(tables.keys) > 0
        return cls(
            numbers=draw.numbers.contiguous(),
            positives=draw.positives.contiguous(),
            owners=draw.owners.contiguous(),
            allowed=draw.allowed.contiguous(),
            columns=tables.columns,
            starts=tables.starts,
            bits=tables.bits if known else None,
            offsets=tables.offsets if known else None,
            keys=tables.keys if known else None,
            spent=tables.spent if known else None,
            when=draw.when,
            items=draw.n_items,
            shift=0 if tables.columns is None else 33 - len(tables.columns).bit_length(),
            stream=draw.stream << 12,
            max_redraws=draw.max_redraws,
        )


def key_words(draw: Draw) -> tuple[int, int, int]:
    """The two words of the seed, and the step, as signed 32-bit integers: one type for all values, so compiled once."""
    first, second, third = (_signed(word) for word in (draw.seed & LOW, draw.seed >> 32, draw.step))
    return first, second, third


def _signed(word: int) -> int:
    return word - (word >> 31 << 32)


def launch_draw(draw: Draw) -> Tensor:
    """The ids of `Draw.negatives`, (B, K) int64; 0 beyond each row's count."""
    ids = torch.empty(draw.rows, draw.width, dtype=torch.int64, device=draw.device)
    if ids.numel():
        block = min(BLOCK, max(16, next_power_of_two(draw.width)))
        tiles = -(-draw.width // block)
        with torch.cuda.device_of(ids):  # type: ignore[no-untyped-call]
            draw_all_kernel[(draw.rows * tiles,)](
                DrawArguments.of(draw), *key_words(draw), draw.counts.contiguous(), ids, draw.width, tiles,
                BLOCK=block, num_warps=max(1, block // 64),
            )  # fmt: skip
    return ids

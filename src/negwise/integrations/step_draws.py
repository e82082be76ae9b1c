"""The draws of a step as functions of four numbers in a tensor, so that a compiled graph serves every step and every K.

The numbers are the step, the first row of the micro-batch over all ranks, floor(K), and the threshold that 53 random
bits have to be below for one negative more. The bits are those of `negwise.draws`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from negwise.draws import Stream, philox

LOW = 0xFFFFFFFF


def step_numbers(step: int, k: float) -> Tensor:
    """The four numbers of ``step`` with K = ``k``, before its first row."""
    whole = math.floor(k)
    return torch.tensor([step, 0, whole, math.ceil(math.ldexp(k - whole, 53))])


def draw_counts(numbers: Tensor, offset: int, rows: int, seed: int) -> Tensor:
    """`negwise.draws.counts` of rows ``offset``, ``offset + 1``, ... of the micro-batch, (rows,) int64."""
    step, base, whole, threshold = numbers.unbind()
    row = base + offset + torch.arange(rows, device=numbers.device)
    first, second = _words(row, row * 0, step, seed, Stream.COUNT)
    return whole + (((first << 21) | (second >> 11)) < threshold)


def draw_order(numbers: Tensor, width: int, seed: int) -> Tensor:
    """A random permutation of ``width`` places, (width,) int64, the same on all ranks."""
    step, base, *_ = numbers.unbind()
    places = torch.arange(width, device=numbers.device)
    first, second = _words(places * 0 + base, places, step, seed, Stream.POOL)
    return torch.argsort((first << 31) | (second >> 1), stable=True)


def _words(rows: Tensor, blocks: Tensor, step: Tensor, seed: int, stream: Stream) -> tuple[Tensor, Tensor]:
    """Two random words of 32 bits, as `negwise.draws.block` has them, for a step that is a tensor."""
    c3 = (rows >> 32) | (int(stream) << 12)
    first, second, *_ = philox(blocks & LOW, rows & LOW, blocks * 0 + step, c3, seed & LOW, seed >> 32)
    return first, second

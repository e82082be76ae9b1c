"""The draws of a step as functions of four numbers, so that a compiled graph serves every step and every K.

The numbers are the step, the first row of the micro-batch over all ranks, floor(K), and the threshold that 53 random
bits have to be below for one negative more. The bits are those of `negwise.draws`. Few draws are made on the host,
where NumPy takes a third of torch's time for 300 small operations. Many are made on the device.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.draws import Stream, philox
from negwise.draws.random_words import Array

LOW = 0xFFFFFFFF
HOST_DRAWS = 4096
"""Up to so many draws are made on the host."""


def step_numbers(step: int, k: float) -> tuple[int, int, int, int]:
    """The four numbers of ``step`` with K = ``k``, before its first row."""
    whole = math.floor(k)
    return step, 0, whole, math.ceil(math.ldexp(k - whole, 53))


def draw_on_host(
    numbers: NDArray[np.int64], offset: int, rows: int, width: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many negatives each row keeps, (rows,), and an order of ``width`` places, (width,), by NumPy."""
    counts = draw_counts(numbers, offset + np.arange(rows), seed)
    return counts, np.argsort(order_keys(numbers, np.arange(width), seed), kind="stable")


def draw_on_device(numbers: Tensor, offset: int, rows: int, width: int, seed: int) -> tuple[Tensor, Tensor]:
    """As `draw_on_host`, where ``numbers`` are, also in a compiled graph."""
    row, place = torch.arange(rows, device=numbers.device), torch.arange(width, device=numbers.device)
    counts = draw_counts(numbers, offset + row, seed)
    return counts, torch.argsort(order_keys(numbers, place, seed), stable=True)


def draw_counts(numbers: Any, row: Array, seed: int) -> Array:
    """`negwise.draws.counts` of each ``row`` of the micro-batch, int64."""
    step, base, whole, threshold = numbers
    first, second = _words(base + row, row * 0, step, seed, Stream.COUNT)
    return whole + (((first << 21) | (second >> 11)) < threshold)


def order_keys(numbers: Any, place: Array, seed: int) -> Array:
    """A random number of 63 bits for each ``place``, the same on all ranks: their order is a random permutation."""
    step, base, *_ = numbers
    first, second = _words(place * 0 + base, place, step, seed, Stream.POOL)
    return (first << 31) | (second >> 1)


def _words(rows: Array, blocks: Array, step: Any, seed: int, stream: Stream) -> tuple[Array, Array]:
    """Two random words of 32 bits, as `negwise.draws.block` has them, for a step that may be a tensor."""
    c3 = (rows >> 32) | (int(stream) << 12)
    first, second, *_ = philox(blocks & LOW, rows & LOW, blocks * 0 + step, c3, seed & LOW, seed >> 32)
    return first, second

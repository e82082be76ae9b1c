"""From random words to bounded integers, in plain torch.

Slot j of a row reads 64 bits, half of block j // 2: ``hi`` and ``lo``, 32 each. So a slot depends on (seed,
step, row, j) only, and the draws for a smaller K are a prefix of those for a larger one. A slot that has to
draw afresh has block j of the next lap for itself, which is two tries. Shapes: B rows, K slots.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.draws import LOW, Key, Stream, block

LAPS = 8
"""Laps of fresh tries before a slot takes a draw that cannot fail."""


def slots(key: Key, width: int, stream: Stream) -> tuple[Tensor, Tensor]:
    """``(hi, lo)``, each (B, width), for a key whose ``row`` is a tensor (B,)."""
    rows = key.rows(len(key.row))  # type: ignore[arg-type]
    blocks = torch.arange((width + 1) // 2, device=rows.device)
    w0, w1, w2, w3 = block(key, rows[:, None], blocks[None, :], stream)
    hi, lo = torch.stack((w0, w2), -1), torch.stack((w1, w3), -1)
    return hi.flatten(1)[:, :width], lo.flatten(1)[:, :width]


def scale(hi: Tensor, lo: Tensor, n: int | Tensor) -> Tensor:
    """``floor(x n / 2^64)`` of the 64-bit ``x = (hi, lo)``: an integer from 0 to n - 1, for n < 2^62.

    Each value has probability 1/n to within 2^-64.
    """
    if isinstance(n, int) and n < 2**31:
        return (hi * n + ((lo * n) >> 32)) >> 32
    upper, lower = n >> 32, n & LOW
    cross = hi * lower, lo * upper
    carry = ((lo * lower) >> 32 & LOW) + (cross[0] & LOW) + (cross[1] & LOW)
    return hi * upper + (cross[0] >> 32 & LOW) + (cross[1] >> 32 & LOW) + (carry >> 32)


def prefix(filled: Tensor, width: int) -> Tensor:
    """The mask (B, width) whose row b begins with ``filled[b]`` true slots."""
    return torch.arange(width, device=filled.device) < filled[:, None]

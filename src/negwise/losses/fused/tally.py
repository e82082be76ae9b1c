"""Many ids into a small table: how often each row drew each item, and then the table as keys that all rows share.

K look-ups a row read K D numbers. Where K is not far below M, the M scores of a row by a matrix product are less work,
and what a draw adds is one count. Beside inputs and gradients there are (B, M) counts of two bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.losses.fused import late
from negwise.losses.fused.draw import Source, key_words
from negwise.losses.fused.given import Hidden, power_of_two
from negwise.losses.fused.tally_kernels import tally
from negwise.protocols import Draw

BLOCK = 1024
"""Ids that are counted at once, at most."""


def times(keys: Tensor, ids: Tensor | Draw, hidden: Hidden, rows: int, width: int) -> Tensor:
    """(B, M) int16: how often each row sees each row of the table; -1 in rows with something wrong."""
    size = len(keys)
    flat = torch.zeros(rows * size + 1, dtype=torch.int16, device=keys.device)  # the last word is whole
    found = flat[:-1].view(rows, size)
    if not found.numel():
        return found
    listed, source, words = (None, Source.of(ids), key_words(ids)) if isinstance(ids, Draw) else (ids, None, (0, 0, 0))
    tally[(rows,)](
        listed, source, *words, hidden.mask, hidden.counts, hidden.row_ids, found,
        flat[: len(flat) // 2 * 2].view(torch.int32), late.notes(keys.device), width, size,
        BLOCK=min(BLOCK, max(16, power_of_two(width))), DRAWN=source is not None,
    )  # fmt: skip
    return found

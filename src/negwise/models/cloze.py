"""Cloze: mask some items of a sequence, which the model predicts. B rows of H positions, P masked items.

The masked positions are a function of (seed, step, row) and of the items of the row. They depend neither on padding nor
on the rest of the batch.
"""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Key, Stream, block
from negwise.errors import InputError
from negwise.models.layers import check_probabilities

# Changes the Philox key, so that masks and negatives of one step are independent.
MASK_SEED = 0x636C6F7A65000000
LAST_ITEM_BLOCK = 2**31
"""The Philox block that decides whether a row masks its last item only, far beyond the blocks of its positions."""


class MaskedItems(NamedTuple):
    """``items`` (B, H), 0 where masked; ``positions`` (P, 2), the (row, position) of each masked item; ``targets``
    (P,), the masked items."""

    items: Tensor
    positions: Tensor
    targets: Tensor


def mask_sequence(items: Tensor, mask: Tensor, rate: float, key: Key, *, last_rate: float = 0.0) -> MaskedItems:
    """Mask ``max(1, round(rate * length))`` items of each row; with probability ``last_rate`` only the last item.

    ``items``, ``mask`` (B, H). All sets of that many items are equally likely. A row without items masks nothing.
    """
    check_probabilities(rate=rate, last_rate=last_rate)
    if items.shape != mask.shape or items.dim() != 2:
        raise InputError(f"items {tuple(items.shape)} and mask {tuple(mask.shape)}, expected the same (B, H)")
    chosen = (_choose_masked_compiled if items.device.type == "cpu" and find_spec("numba") else _choose_masked)(
        mask, rate, replace(key, seed=int(key.seed) ^ MASK_SEED).on(items.device, len(items)), int(last_rate * 2**32)
    )
    positions = chosen.nonzero()
    return MaskedItems(items.masked_fill(chosen, 0), positions, items[positions[:, 0], positions[:, 1]])


def _choose_masked(mask: Tensor, rate: float, key: Key, last_below: int) -> Tensor:
    """The masked positions, (B, H) bool: in each row those with the smallest random words."""
    rows, width = mask.shape
    length = mask.sum(1, keepdim=True)
    number = (mask.cumsum(1) - 1).clamp(min=0)  # index of the item within its row
    numbers = key.rows(rows)[:, None]
    blocks = torch.arange((width + 3) // 4, device=mask.device)
    words = torch.stack(block(key, numbers, blocks, Stream.ITEM), -1).flatten(1)  # (B, width or a few more)
    words = words.gather(1, number).masked_fill(~mask, 2**32)
    wanted = torch.floor(rate * length.double() + 0.5).clamp(min=1)
    first = torch.arange(width, device=mask.device) < wanted
    chosen = torch.zeros_like(mask).scatter_(1, words.argsort(dim=1, stable=True), first)
    coin = block(key, numbers, numbers * 0 + LAST_ITEM_BLOCK, Stream.ITEM)[0]
    return torch.where(coin < last_below, number == length - 1, chosen) & mask


def _choose_masked_compiled(mask: Tensor, rate: float, key: Key, last_below: int) -> Tensor:
    """The same in numba: several times as fast on a CPU, where masking took most of the time to prepare a step."""
    from negwise.models.compiled_cloze import choose_masked

    chosen = torch.zeros_like(mask)
    counter = (int(key.step), int(Stream.ITEM) << 12, np.uint64(key.seed), LAST_ITEM_BLOCK)
    choose_masked(chosen.numpy(), mask.numpy(), key.rows(len(mask)).numpy(), rate, last_below, *counter)
    return chosen

"""Texts of a batch told apart by their token ids: equal texts, and the empty text of a negative that is not there.

Shapes: B rows, L tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.draws import Key, Stream, block

MIN_PLACES = 512
"""Weights are made for at least so many places, and for a power of 2 of them."""
ALL_PAIRS = 512
"""Up to so many texts, all pairs are compared: a GPU has that in fewer operations than a sort."""
SEED = 20260
"""Of the weights of places."""


def text_hashes(features: Mapping[str, Any]) -> Tensor | None:
    """A number of 64 bits for each row's tokens, (B,) int64; None for inputs that are not (B, L) token ids.

    It is the sum of (token + 1) times a random weight of its place, modulo 2^64. Padding does not count, on either
    side. Two texts whose tokens differ by less than 2^s share a number with probability at most 2^(s - 64).
    """
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or ids.dim() != 2 or mask.shape != ids.shape:
        return None
    ids, real = ids.long(), mask.long()
    length = max(ids.shape[1], MIN_PLACES)
    weights = _place_weights(1 << (length - 1).bit_length(), ids.device)
    # The place of padding does not matter: its number is 0, and that of a token is the token + 1.
    return (weights[real.cumsum(1)] * torch.addcmul(real, ids, real)).sum(1)


@cache
def _place_weights(places: int, device: torch.device) -> Tensor:
    """A random number of 64 bits for each place from 1 to ``places``, the same in every process; 0 for place 0."""
    place = np.arange(1, places + 1)
    high, low, *_ = block(Key(SEED, 0), place, place * 0, Stream.ITEM)
    return torch.from_numpy(np.concatenate([[0], (high << 32) | low])).to(device)


def any_equal(positives: Tensor, others: list[Tensor]) -> Tensor:
    """Whether a positive (B,) occurs twice, or among ``others``; on the device, without a wait for it."""
    if len(positives) <= ALL_PAIRS:
        twice = (positives[:, None] == positives).sum() != len(positives)
    else:
        ordered = positives.sort().values
        twice = (ordered[1:] == ordered[:-1]).any()
    return twice | torch.isin(torch.cat(others), positives).any() if others else twice

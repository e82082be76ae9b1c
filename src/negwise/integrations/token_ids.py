"""Texts of a batch told apart by their token ids: equal texts, and the empty text of a negative that is not there.

Shapes: B rows, L tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


def text_hashes(features: Mapping[str, Any]) -> Tensor | None:
    """A number of 64 bits for each row's tokens, (B,) int64; None for inputs that are not (B, L) token ids.

    Padding does not count, on either side. Two texts share a number with probability 2^-63 or so.
    """
    ids, mask = features.get("input_ids"), features.get("attention_mask")
    if not isinstance(ids, Tensor) or not isinstance(mask, Tensor) or ids.dim() != 2 or mask.shape != ids.shape:
        return None
    real = mask.long()
    place = real.cumsum(1) * real  # 0 for padding, 1, 2, ... for tokens
    # The finaliser of splitmix64 makes a weight of each (token, place); int64 wraps, as it should.
    mixed = (ids.long() + 1) * -7046029254386353131 + place * -4417276706812531889
    mixed = (mixed ^ _shift(mixed, 30)) * -4658895280553007687
    mixed = (mixed ^ _shift(mixed, 27)) * -7723592293110705685
    return ((mixed ^ _shift(mixed, 31)) * real).sum(1)


def _shift(value: Tensor, bits: int) -> Tensor:
    """A logical shift to the right; torch's own keeps the sign."""
    return (value >> bits) & (2 ** (64 - bits) - 1)


def any_equal(positives: Tensor, others: list[Tensor]) -> Tensor:
    """Whether a positive (B,) occurs twice, or among ``others``; on the device, without a wait for it."""
    ordered = positives.sort().values
    twice = (ordered[1:] == ordered[:-1]).any()
    return twice | torch.isin(torch.cat(others), positives).any() if others else twice

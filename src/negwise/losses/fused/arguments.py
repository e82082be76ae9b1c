"""Arguments of all kernels: contiguous, and in types that Triton reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from negwise.losses.masking import Masking


@dataclass(frozen=True)
class MaskArguments:
    """A `Masking` in the form that the kernels read."""

    mask: Tensor | None  # (B, K) uint8
    counts: Tensor | None  # (B,)
    row_ids: Tensor | None  # (B,)
    key_ids: Tensor | None  # (K,) or (B, K)
    log_q: Tensor | None  # (K,) or (B, K)
    exclude_diagonal: bool  # row b does not have negative b

    @classmethod
    def of(cls, masking: Masking) -> MaskArguments:
        mask = None if masking.mask is None else masking.mask.contiguous().view(torch.uint8)
        row_ids, key_ids = (
            (None, None) if masking.exclude_diagonal or masking.row_ids is None else (masking.row_ids, masking.key_ids)
        )
        counts, log_q = _contiguous(masking.counts), _contiguous(masking.log_q)
        return cls(mask, counts, _contiguous(row_ids), _contiguous(key_ids), log_q, masking.exclude_diagonal)

    @property
    def partial(self) -> bool:
        """Whether a row may have fewer than all negatives, the diagonal aside."""
        return self.mask is not None or self.counts is not None or self.row_ids is not None

    @property
    def per_row_q(self) -> bool:
        return self.log_q is not None and self.log_q.dim() == 2


NO_MASK = MaskArguments(None, None, None, None, None, exclude_diagonal=False)
"""Every row has every key."""


@dataclass(frozen=True)
class Temperature:
    """The temperature: a number, or a tensor of 1 value (``stride`` 0) or of B values (``stride`` 1)."""

    number: float
    tensor: Tensor | None
    stride: int

    @classmethod
    def of(cls, temperature: float | Tensor, like: Tensor) -> Temperature:
        if not isinstance(temperature, Tensor):
            return cls(float(temperature), None, 0)
        flat = temperature.detach().to(like.device).reshape(-1).contiguous()
        return cls(1.0, flat, int(len(flat) > 1))


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def next_power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@cache
def processors(device: torch.device) -> int:
    """About how many programs run at once. In the interpreter it is 4, so that tests split the work too."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4

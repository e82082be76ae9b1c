"""What both kinds of kernels are given, made ready: contiguous, and in types that Triton reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from negwise.losses.masking import Masking


@dataclass(frozen=True)
class MaskArguments:
    """`Masking`, as the kernels read it."""

    mask: Tensor | None  # (B, K) uint8
    counts: Tensor | None  # (B,)
    row_ids: Tensor | None  # (B,)
    key_ids: Tensor | None  # (K,) or (B, K)
    log_q: Tensor | None  # (K,) or (B, K)
    exclude_diagonal: bool  # not the negative of the row's own number

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
        """Whether some row may see less than all, its own number aside."""
        return self.mask is not None or self.counts is not None or self.row_ids is not None

    @property
    def per_row_q(self) -> bool:
        return self.log_q is not None and self.log_q.dim() == 2


NO_MASK = MaskArguments(None, None, None, None, None, exclude_diagonal=False)
"""Every row sees every key."""


@dataclass(frozen=True)
class Temperature:
    """The temperature: one number, or a tensor of one or of B numbers that are ``stride`` apart."""

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
    """The smallest one that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@cache
def processors(device: torch.device) -> int:
    """How many programs run at once, about; the interpreter's one core counts as a few, so that splits are tried."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4

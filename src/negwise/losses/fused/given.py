"""What both kinds of kernels are given, made ready: contiguous, and in types that Triton reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from negwise.losses.visible import Visible


@dataclass(frozen=True)
class Hidden:
    """`Visible`, as the kernels read it."""

    mask: Tensor | None  # (B, K) uint8
    counts: Tensor | None  # (B,)
    row_ids: Tensor | None  # (B,)
    key_ids: Tensor | None  # (K,) or (B, K)
    log_q: Tensor | None  # (K,) or (B, K)
    own: bool  # not the negative of the row's own number

    @classmethod
    def of(cls, seen: Visible) -> Hidden:
        mask = None if seen.mask is None else seen.mask.contiguous().view(torch.uint8)
        row_ids, key_ids = (None, None) if seen.own or seen.row_ids is None else (seen.row_ids, seen.key_ids)
        counts, log_q = _dense(seen.counts), _dense(seen.log_q)
        return cls(mask, counts, _dense(row_ids), _dense(key_ids), log_q, seen.own)

    @property
    def partial(self) -> bool:
        """Whether some row may see less than all, its own number aside."""
        return self.mask is not None or self.counts is not None or self.row_ids is not None

    @property
    def per_row_q(self) -> bool:
        return self.log_q is not None and self.log_q.dim() == 2


NOTHING = Hidden(None, None, None, None, None, own=False)
"""Every row sees every key."""


@dataclass(frozen=True)
class Heat:
    """The temperature: one number, or a tensor of one or of B numbers that are ``step`` apart."""

    number: float
    tensor: Tensor | None
    step: int

    @classmethod
    def of(cls, temperature: float | Tensor, like: Tensor) -> Heat:
        if not isinstance(temperature, Tensor):
            return cls(float(temperature), None, 0)
        flat = temperature.detach().to(like.device).reshape(-1).contiguous()
        return cls(1.0, flat, int(len(flat) > 1))


def _dense(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def power_of_two(n: int) -> int:
    """The smallest one that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@cache
def processors(device: torch.device) -> int:
    """How many programs run at once, about; the interpreter's one core counts as a few, so that splits are tried."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4

"""A convolution over words."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.models.limits import counted


class Convolution(nn.Module):
    """activation(conv(x)) over windows of ``window`` words, as many places out as in: (N, L, E) -> (N, L, filters).

    Padding is zeros, like what lies beyond the ends of the text, so that it cannot be seen.
    """

    def __init__(
        self, width: int, filters: int, window: int, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        super().__init__()
        counted(hidden=filters, window=window)
        if window % 2 == 0:
            raise InputError(f"window={window}, expected an odd number of words such as 3")
        self.convolution = nn.Conv1d(width, filters, window, padding=window // 2)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x * mask[..., None]
        return self.activation(self.convolution(x.transpose(1, 2))).transpose(1, 2)

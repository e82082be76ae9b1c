"""Recurrent layers over rows of different length, without packing: cuDNN's plain path, and no wait for lengths.

A state never looks ahead, so what comes after the last item cannot be seen in it. N rows, L places, E width in.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from negwise.models.limits import counted


class Recurrence(nn.Module):
    """An LSTM in reading order, one state per word: (N, L, E) -> (N, L, D). Padding is on the right."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        counted(hidden=hidden)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002 - the reader of the states has the mask
        states: Tensor = self.lstm(x)[0]
        return states


class LastState(nn.Module):
    """The state of a GRU after the last item: x (N, L, E), length (N,), start (N, D) -> (N, D).

    Padding is on the right; a row without items ends where it starts.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, batch_first=True)

    def forward(self, x: Tensor, length: Tensor, start: Tensor) -> Tensor:
        if x.shape[1] == 0:
            return start
        states, _ = self.gru(x, start.to(x.dtype)[None].contiguous())
        last = (length - 1).clamp(min=0)
        state = states[torch.arange(len(x), device=x.device), last]
        return torch.where(length[:, None] > 0, state, start.to(state.dtype))

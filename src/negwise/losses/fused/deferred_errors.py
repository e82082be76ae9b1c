"""Errors that a kernel finds, raised later, without waiting for the GPU.

A kernel that reads a bad value makes the loss and the gradient of that row NaN. It writes the value to a few numbers of
host memory that the GPU can reach. Reading those costs nothing and does not wait. The next call of the loss, forward
or backward, reads them. So does `raise_deferred_errors`: call it after the GPU has finished, as a training loop does
when it reads its loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.errors import InputError

N_SLOTS = 10
"""Loss not finite: flag, row. Id outside the table: flag, row, id, M. Count too large: flag, row, count, K."""

_slots_by_device: dict[torch.device, Tensor] = {}


def error_slots(device: torch.device) -> Tensor:
    """The memory that kernels on ``device`` write to: int64, 0 without errors."""
    if device not in _slots_by_device:
        _slots_by_device[device] = torch.zeros(N_SLOTS, dtype=torch.int64, pin_memory=device.type == "cuda")
    return _slots_by_device[device]


def raise_deferred_errors() -> None:
    """Raise `InputError` if a kernel that has finished found a bad value. Each error is raised once."""
    for device, found in _slots_by_device.items():
        loss, loss_row, outside, id_row, value, size, beyond, count_row, count, width = found.tolist()
        if not (loss or outside or beyond):
            continue
        found.zero_()
        if outside:
            what = f"ids[{id_row}] holds {value}; expected 0..{size - 1}, a row of the table, or False in the mask"
        elif beyond:
            what = f"mask as counts has {count} in row {count_row}; expected 0..{width}, the number of negatives"
        else:
            what = f"the loss of row {loss_row} is not finite; an input is not finite, or the scores overflow"
        raise InputError(
            f"an earlier info_nce on {device}: {what}. The loss and gradient of such rows are NaN. The kernels do not "
            "wait for the GPU, so this error comes late; impl='streamed' checks first and names the input"
        )

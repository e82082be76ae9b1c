"""What a kernel found wrong, told without waiting for the GPU.

A kernel that meets a bad value makes the loss and the gradient of that row NaN, and writes what it saw to a few
numbers of host memory that the GPU can reach. Looking at those costs nothing and waits for nothing: the next call of
the loss, forward or backward, looks, and so does anyone who calls `raise_deferred_errors` after waiting for the
GPU for reasons of their own, as a training loop does when it reads its loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from negwise.errors import InputError

N_SLOTS = 10
"""A loss not finite: found, row. An id outside: found, row, id, M. A count beyond: found, row, count, K."""

_slots_by_device: dict[torch.device, Tensor] = {}


def error_slots(device: torch.device) -> Tensor:
    """The memory for kernels on ``device``: int64, zero where all is well."""
    if device not in _slots_by_device:
        _slots_by_device[device] = torch.zeros(N_SLOTS, dtype=torch.int64, pin_memory=device.type == "cuda")
    return _slots_by_device[device]


def raise_deferred_errors() -> None:
    """Raise `InputError` if a kernel that has run by now met a bad value. It says so once."""
    for device, found in _slots_by_device.items():
        loss, loss_row, outside, id_row, value, size, beyond, count_row, count, width = found.tolist()
        if not (loss or outside or beyond):
            continue
        found.zero_()
        if outside:
            what = f"ids[{id_row}] holds {value}; expected 0..{size - 1}, a row of the table, or a mask that hides it"
        elif beyond:
            what = f"mask as counts says {count} in row {count_row}; there are {width} negatives, so 0..{width}"
        else:
            what = f"the loss of row {loss_row} is not finite: an input is not, or the scores overflow"
        raise InputError(
            f"an info_nce on {device} that has run by now: {what}. Its loss and gradient are NaN in such rows. The "
            "fused kernels do not wait for the GPU, so this comes late; impl='streamed' looks first and names the input"
        )

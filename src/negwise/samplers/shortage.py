"""K larger than what is there: a stated policy, never a silent one.

``mask``     the row gets what there is; the other slots are masked.
``replace``  the row gets what there is, then repeats from it at random; nothing to repeat is an error.
``error``    an `InputError` that names the row.

``mask`` costs nothing; the other two read counts back from the device.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from negwise.errors import InputError

OnShortage = Literal["mask", "replace", "error"]


def check_policy(on_shortage: str) -> None:
    if on_shortage not in get_args(OnShortage):
        raise InputError(f"on_shortage={on_shortage!r}, expected 'mask', 'replace' or 'error'")


def settle(wanted: Tensor, available: Tensor, on_shortage: OnShortage) -> Tensor:
    """How many slots of each row are filled, (B,), for ``wanted`` (B,) of ``available`` (B,) candidates."""
    if on_shortage == "mask":
        return torch.minimum(wanted, available)
    short = (wanted > available) if on_shortage == "error" else (wanted > 0) & (available == 0)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        came = f"row {row} of the batch wants {int(wanted[row])} negatives and has {int(available[row])}"
        raise InputError(f"{came} to draw from; lower k, or pass on_shortage='mask'")
    return wanted

"""What every sampler does first: look at what came, and settle how many slots each row wants.

From random words to bounded integers, in plain torch: slot j of a row reads 64 bits, half of block j // 2: ``hi`` and
``lo``, 32 each. So a slot depends on (seed, step, row, j) only, and the draws for a smaller K are a prefix of those for
a larger one. A slot that has to draw afresh has block j of the next redraw for itself, which is two tries. Shapes: B
rows, K slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from negwise.draws import LOW, Key, Stream, block, counts, most
from negwise.errors import InputError, require
from negwise.samplers.lists import check_ids

MAX_REDRAWS = 8
"""Redraws, two fresh tries each, before a slot takes a draw that cannot fail."""

Impl = Literal["auto", "torch", "numba"]
OnShortage = Literal["mask", "replace", "error"]
"""K larger than what is there: a stated policy, never a silent one.

``mask``     the row gets what there is; the other slots are masked.
``replace``  the row gets what there is, then repeats from it at random; nothing to repeat is an error.
``error``    an `InputError` that names the row.

``mask`` costs nothing; the other two read counts back from the device.
"""


@dataclass(frozen=True, eq=False)
class DrawRequest:
    """``width`` = Kmax slots, of which row b wants ``wanted[b]``; ``key`` has its rows on the device."""

    positives: Tensor
    width: int
    wanted: Tensor
    key: Key

    @classmethod
    def of(cls, positives: Tensor, k: float, key: Key) -> DrawRequest:
        ids = check_ids("positives", positives)
        if ids.ndim != 1:
            raise InputError(f"positives has shape {tuple(ids.shape)}, expected a 1-D tensor of ids; flatten it first")
        if not isinstance(key, Key):
            raise InputError(f"key is a {type(key).__name__}, expected Key(seed, step)")
        key = key.on(positives.device, len(positives))
        return cls(ids, most(k), counts(k, len(ids), key), key)


def check_on_shortage(on_shortage: str) -> None:
    if on_shortage not in get_args(OnShortage):
        raise InputError(f"on_shortage={on_shortage!r}, expected 'mask', 'replace' or 'error'")


def resolve_shortage(wanted: Tensor, available: Tensor, on_shortage: OnShortage) -> Tensor:
    """How many slots of each row are filled, (B,), for ``wanted`` (B,) of ``available`` (B,) candidates."""
    if on_shortage == "mask":
        return torch.minimum(wanted, available)
    short = (wanted > available) if on_shortage == "error" else (wanted > 0) & (available == 0)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        came = f"row {row} of the batch wants {int(wanted[row])} negatives and has {int(available[row])}"
        raise InputError(f"{came} to draw from; lower k, or pass on_shortage='mask'")
    return wanted


def resolve_impl(impl: str, device: torch.device) -> Literal["torch", "numba"]:
    """What ``impl`` means on ``device``: "auto" is numba on the CPU where it is installed, else torch."""
    if impl not in get_args(Impl):
        raise InputError(f"impl={impl!r}, expected 'auto', 'torch' or 'numba'")
    if impl == "numba" and device.type != "cpu":
        raise InputError(f"impl='numba' runs on the CPU, and positives are on {device}; pass impl='auto'")
    if impl == "auto":
        impl = "numba" if device.type == "cpu" and find_spec("numba") else "torch"
    return "numba" if impl == "numba" else "torch"


def load_compiled() -> Any:
    """The numba loops; compiled when first called, then cached on disk."""
    require("numba", extra="train")
    from negwise.samplers import compiled_draws

    return compiled_draws


def slot_words(key: Key, width: int, stream: Stream) -> tuple[Tensor, Tensor]:
    """``(hi, lo)``, each (B, width), for a key whose ``row`` is a tensor (B,)."""
    rows = key.rows(len(key.row))  # type: ignore[arg-type]
    blocks = torch.arange((width + 1) // 2, device=rows.device)
    w0, w1, w2, w3 = block(key, rows[:, None], blocks[None, :], stream)
    hi, lo = torch.stack((w0, w2), -1), torch.stack((w1, w3), -1)
    return hi.flatten(1)[:, :width], lo.flatten(1)[:, :width]


def scale_words(hi: Tensor, lo: Tensor, n: int | Tensor) -> Tensor:
    """``floor(x n / 2^64)`` of the 64-bit ``x = (hi, lo)``: an integer from 0 to n - 1, for n < 2^62.

    Each value has probability 1/n to within 2^-64.
    """
    if isinstance(n, int) and n < 2**31:
        return (hi * n + ((lo * n) >> 32)) >> 32
    upper, lower = n >> 32, n & LOW
    cross = hi * lower, lo * upper
    carry = ((lo * lower) >> 32 & LOW) + (cross[0] & LOW) + (cross[1] & LOW)
    return hi * upper + (cross[0] >> 32 & LOW) + (cross[1] >> 32 & LOW) + (carry >> 32)


def prefix_mask(filled: Tensor, width: int) -> Tensor:
    """The mask (B, width) whose row b begins with ``filled[b]`` true slots."""
    return torch.arange(width, device=filled.device) < filled[:, None]

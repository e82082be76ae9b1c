"""What all samplers share: checked arguments, the policy for too few candidates, and random integers in plain torch.

Slot j of a row reads 64 random bits, half of block j // 2, as two 32-bit words ``hi`` and ``lo``. So a slot depends
only on (seed, step, row, j), and the draws for a smaller K are a prefix of those for a larger K. A redraw of
slot j reads block j of the next lap, 128 bits, which is enough for two tries. Shapes: B rows, K slots.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from negwise.draws import Key, Stream, block, counts, max_count
from negwise.draws.random_words import LOW
from negwise.errors import InputError, require
from negwise.protocols import Negatives, Query, Sampler
from negwise.samplers.lists import check_ids

MAX_REDRAWS = 8
"""Redraws of two tries each, before a slot falls back to bisection, which cannot fail."""

Impl = Literal["auto", "torch", "numba"]
OnShortage = Literal["mask", "replace", "error"]
"""What happens if a row has fewer candidates than K.

``mask``     the row gets all candidates; the other slots are masked.
``replace``  the row gets all candidates, then random repeats; a row without candidates is an error.
``error``    an `InputError` that names the row.

``mask`` costs nothing; the other two read counts back from the device.
"""


@dataclass(frozen=True, eq=False)
class DrawRequest:
    """A checked request: ``width`` = Kmax slots, of which row b wants ``wanted[b]``.

    The row numbers of ``key`` are a tensor on the device.
    """

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
        return cls(ids, max_count(k), counts(k, len(ids), key), key)


def draw_part(
    part: Sampler,
    positives: Tensor,
    k: float,
    key: Key,
    *,
    owner: Tensor | None,
    query: Query | None,
    batch: Tensor | None = None,
) -> Negatives:
    """What ``part`` of another sampler draws. It gets the ``query`` and the ``batch`` if it takes them."""
    takes = inspect.signature(part).parameters
    more: dict[str, Any] = {"query": query, "batch": batch}
    return part(positives, k, key, owner=owner, **{name: value for name, value in more.items() if name in takes})


def check_on_shortage(on_shortage: str) -> None:
    if on_shortage not in get_args(OnShortage):
        raise InputError(f"on_shortage={on_shortage!r}, expected 'mask', 'replace' or 'error'")


def resolve_shortage(wanted: Tensor, available: Tensor, on_shortage: OnShortage) -> Tensor:
    """How many slots of each row are filled (B,), given ``wanted`` (B,) slots and ``available`` (B,) candidates."""
    if on_shortage == "mask":
        return torch.minimum(wanted, available)
    short = (wanted > available) if on_shortage == "error" else (wanted > 0) & (available == 0)
    if bool(short.any()):
        row = int(short.nonzero()[0])
        came = f"row {row} of the batch wants {int(wanted[row])} negatives and has {int(available[row])}"
        raise InputError(f"{came} to draw from; lower k, or pass on_shortage='mask'")
    return wanted


def resolve_impl(impl: str, device: torch.device) -> Literal["torch", "numba"]:
    """The implementation for ``device``. "auto" is numba on the CPU if it is installed, else torch."""
    if impl not in get_args(Impl):
        raise InputError(f"impl={impl!r}, expected 'auto', 'torch' or 'numba'")
    if impl == "numba" and device.type != "cpu":
        raise InputError(f"impl='numba' runs on the CPU only, and positives are on {device}; pass impl='auto'")
    if impl == "auto":
        impl = "numba" if device.type == "cpu" and find_spec("numba") else "torch"
    return "numba" if impl == "numba" else "torch"


def load_compiled() -> Any:
    """The module of numba loops. They are compiled at the first call, then cached on disk."""
    require("numba", extra="train")
    from negwise.samplers import compiled_draws

    return compiled_draws


def slot_words(key: Key, width: int, stream: Stream) -> tuple[Tensor, Tensor]:
    """The random words ``(hi, lo)`` of each slot, (B, width) each. ``key.row`` is a tensor (B,)."""
    rows = key.rows(len(key.row))  # type: ignore[arg-type]
    blocks = torch.arange((width + 1) // 2, device=rows.device)
    w0, w1, w2, w3 = block(key, rows[:, None], blocks[None, :], stream)
    hi, lo = torch.stack((w0, w2), -1), torch.stack((w1, w3), -1)
    return hi.flatten(1)[:, :width], lo.flatten(1)[:, :width]


def scale_words(hi: Tensor, lo: Tensor, n: int | Tensor) -> Tensor:
    """An integer from 0 to n - 1, for n < 2^62: ``floor(x n / 2^64)`` of the 64-bit ``x = (hi, lo)``.

    Each value has probability 1/n to within 2^-64.
    """
    if isinstance(n, int) and n < 2**31:
        return (hi * n + ((lo * n) >> 32)) >> 32
    upper, lower = n >> 32, n & LOW
    cross = hi * lower, lo * upper
    carry = ((lo * lower) >> 32 & LOW) + (cross[0] & LOW) + (cross[1] & LOW)
    return hi * upper + (cross[0] >> 32 & LOW) + (cross[1] >> 32 & LOW) + (carry >> 32)


def prefix_mask(filled: Tensor, width: int) -> Tensor:
    """A mask (B, width) with the first ``filled[b]`` slots of row b True."""
    return torch.arange(width, device=filled.device) < filled[:, None]

"""Triton kernels for CUDA: InfoNCE in a few launches that wait for nothing, whatever K.

Importing this imports no Triton; `rows` and `drawn` do. ``function`` is the differentiable step, ``lookup`` and
``product`` its two layouts, ``tally`` the first as the second, ``draw`` ids that are drawn where they are read,
``lookup_kernels``, ``product_kernels``, ``tally_kernels``, ``draw_kernels`` and ``online`` the kernels, ``late`` what
they found wrong.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import cache

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses.layout import Drawn, Keys, Layout, Shared, Table, Tallied
from negwise.losses.result import Rows
from negwise.losses.visible import Visible
from negwise.protocols import Draw

WIDEST = 1024
"""Width up to which products are known to be as exact as the reference's."""
PLACES = 2**31
"""Places of ids are counted in 32 bits."""
MOST_COUNTED = 2**15 - 1
"""Negatives of a row, all of which may be the same."""
WORTH_COUNTING = 16
"""Rows of a table to a negative up to which counting ids first is faster than to look each of them up (measured forward
and backward, at width 128), and takes no more memory than their sort."""
NARROW = 256
"""Width up to which that is so: wider vectors are multiplied in smaller tiles."""


def obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot take tensors of this device and computing dtype, or None."""
    if torch.compiler.is_compiling():
        return "torch.compile cannot look into the kernels"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not interpreted:
        return f"the kernels run on CUDA (or, for tests, with TRITON_INTERPRET=1), and query is on {device}"
    if dtype == torch.float64:
        return "the kernels compute in float32, not in float64"
    if not _installed():
        return "the package 'triton' is not installed; type: pip install triton"
    return None


def too_large(layout: Layout | Drawn, rows: int, width: int) -> str | None:
    """Why the kernels cannot take negatives of this layout, or None."""
    if not isinstance(layout, Shared) and layout.keys.requires_grad and rows * width >= PLACES:
        return f"the kernels count {rows:,} x {width:,} places in 32 bits"
    return None


def rather_not(layout: Layout | Drawn, query: Tensor) -> str | None:
    """Why others do this layout better, or None."""
    if not isinstance(layout, Shared):
        return None
    if query.dtype == torch.float32 or layout.keys.dtype != query.dtype:
        return "matrix products in float32, which here are never tf32, are left to cuBLAS"
    if query.shape[1] > WIDEST:
        return f"above width {WIDEST:,} nobody has looked how exact the kernels are"
    return None


@cache
def _installed() -> bool:
    there = importlib.util.find_spec("triton") is not None
    if not there and torch.cuda.is_available():
        warnings.warn("triton is not installed, so negwise's losses take the plain path on CUDA", stacklevel=4)
    return there


def cannot_tally(layout: Layout | Drawn, query: Tensor, seen: Visible) -> str | None:
    """Why ids cannot be counted before they are looked up, or None."""
    if not isinstance(layout, Table | Drawn):
        return "it counts ids into a table, and there are none"
    if not len(layout.keys):
        return "the table is empty"
    if seen.log_q is not None:
        return "log_q corrects single draws, and counts do not keep them"
    if query.dtype != layout.keys.dtype or query.dtype not in (torch.bfloat16, torch.float16):
        return f"it multiplies bfloat16 or float16, not {query.dtype} and {layout.keys.dtype}"
    if seen.width > MOST_COUNTED:
        return f"it counts to {MOST_COUNTED:,}, and a row has {seen.width:,} negatives"
    return None


def worth_counting(layout: Layout | Drawn, query: Tensor, seen: Visible) -> bool:
    """Whether to count ids first is less work than to look each of them up.

    Only for a table that learns: its gradient is what look-ups sort the ids for.
    """
    learns = layout.keys.requires_grad and torch.is_grad_enabled()
    few = len(layout.keys) <= WORTH_COUNTING * seen.width and query.shape[1] <= NARROW
    return learns and few and cannot_tally(layout, query, seen) is None


def tallied(layout: Layout | Drawn) -> Tallied:
    """The same ids, to be counted first; where `cannot_tally` has nothing against it."""
    assert isinstance(layout, Table | Drawn)
    return Tallied(layout.keys, layout.draw if isinstance(layout, Drawn) else layout.ids.contiguous())


def rows(
    query: Tensor, positive: Tensor, temperature: float | Tensor, layout: Keys, seen: Visible, stats: bool
) -> Rows:
    """``query`` and ``positive`` (B, D) as they came -> the loss of each row."""
    from negwise.losses.fused import function

    return function.rows(query, positive, temperature, layout, seen, stats)


def drawn(draw: Draw) -> Tensor:
    """The ids (B, K) int64 of ``draw.negatives()`` in one launch, bit for bit, 0 beyond each row's count."""
    reason = obstacle(draw.device, torch.float32)
    if reason is not None:
        raise InputError(f"drawn: {reason}. Type draw.negatives().ids")
    from negwise.losses.fused import draw as kernels

    return kernels.drawn(draw)


__all__ = ["cannot_tally", "drawn", "obstacle", "rather_not", "rows", "tallied", "too_large", "worth_counting"]

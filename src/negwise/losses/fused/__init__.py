"""Triton kernels for CUDA: InfoNCE in a few launches that wait for nothing, whatever K.

Importing this imports no Triton; `fused_losses` and `draw_ids` do. ``function`` is the differentiable step, ``lookup``
and ``product`` its two layouts, ``counted`` the first as the second, ``drawn_ids`` ids that are drawn where they are
read, ``lookup_kernels``, ``product_kernels``, ``drawn_ids_kernels`` and ``softmax_parts`` the kernels,
``deferred_errors`` what they found wrong.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from functools import cache

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses.layout import CountedKeys, DrawnKeys, Keys, Layout, SharedKeys, TableKeys
from negwise.losses.masking import Masking
from negwise.losses.result import RowLosses
from negwise.protocols import Draw

MAX_WIDTH = 1024
"""Width up to which products are known to be as exact as the reference's."""
PLACES = 2**31
"""Places of ids are counted in 32 bits."""
MAX_COUNT = 2**15 - 1
"""Negatives of a row, all of which may be the same."""
MAX_ROWS_PER_NEGATIVE = 16
"""Rows of a table to a negative up to which counting ids first is faster than to look each of them up (measured forward
and backward, at width 128), and takes no more memory than their sort."""
MAX_COUNTED_WIDTH = 256
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


def too_large(layout: Layout | DrawnKeys, rows: int, width: int) -> str | None:
    """Why the kernels cannot take negatives of this layout, or None."""
    if not isinstance(layout, SharedKeys) and layout.keys.requires_grad and rows * width >= PLACES:
        return f"the kernels count {rows:,} x {width:,} places in 32 bits"
    return None


def better_elsewhere(layout: Layout | DrawnKeys, query: Tensor) -> str | None:
    """Why others do this layout better, or None."""
    if not isinstance(layout, SharedKeys):
        return None
    if query.dtype == torch.float32 or layout.keys.dtype != query.dtype:
        return "matrix products in float32, which here are never tf32, are left to cuBLAS"
    if query.shape[1] > MAX_WIDTH:
        return f"above width {MAX_WIDTH:,} nobody has looked how exact the kernels are"
    return None


def cannot_count(layout: Layout | DrawnKeys, query: Tensor, masking: Masking) -> str | None:
    """Why ids cannot be counted before they are looked up, or None."""
    if not isinstance(layout, TableKeys | DrawnKeys):
        return "it counts ids into a table, and there are none"
    if not len(layout.keys):
        return "the table is empty"
    if masking.log_q is not None:
        return "log_q corrects single draws, and counts do not keep them"
    if query.dtype != layout.keys.dtype or query.dtype not in (torch.bfloat16, torch.float16):
        return f"it multiplies bfloat16 or float16, not {query.dtype} and {layout.keys.dtype}"
    if masking.width > MAX_COUNT:
        return f"it counts to {MAX_COUNT:,}, and a row has {masking.width:,} negatives"
    return None


def worth_counting(layout: Layout | DrawnKeys, query: Tensor, masking: Masking) -> bool:
    """Whether to count ids first is less work than to look each of them up.

    Only for a table that learns: its gradient is what look-ups sort the ids for.
    """
    learns = layout.keys.requires_grad and torch.is_grad_enabled()
    few = len(layout.keys) <= MAX_ROWS_PER_NEGATIVE * masking.width and query.shape[1] <= MAX_COUNTED_WIDTH
    return learns and few and cannot_count(layout, query, masking) is None


def as_counted(layout: Layout | DrawnKeys) -> CountedKeys:
    """The same ids, to be counted first; where `cannot_count` has nothing against it."""
    assert isinstance(layout, TableKeys | DrawnKeys)
    return CountedKeys(layout.keys, layout.draw if isinstance(layout, DrawnKeys) else layout.ids.contiguous())


def fused_losses(
    query: Tensor, positive: Tensor, temperature: float | Tensor, layout: Keys, masking: Masking, stats: bool
) -> RowLosses:
    """``query`` and ``positive`` (B, D) as they came -> the loss of each row."""
    from negwise.losses.fused import function

    return function.kernel_losses(query, positive, temperature, layout, masking, stats)


def draw_ids(draw: Draw) -> Tensor:
    """The ids (B, K) int64 of ``draw.negatives()`` in one launch, bit for bit, 0 beyond each row's count."""
    reason = obstacle(draw.device, torch.float32)
    if reason is not None:
        raise InputError(f"draw_ids: {reason}. Type draw.negatives().ids")
    from negwise.losses.fused import drawn_ids

    return drawn_ids.launch_draw(draw)


@cache
def _installed() -> bool:
    there = importlib.util.find_spec("triton") is not None
    if not there and torch.cuda.is_available():
        warnings.warn("triton is not installed, so negwise's losses take the plain path on CUDA", stacklevel=4)
    return there


__all__ = [
    "as_counted",
    "better_elsewhere",
    "cannot_count",
    "draw_ids",
    "fused_losses",
    "obstacle",
    "too_large",
    "worth_counting",
]

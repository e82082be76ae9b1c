"""Triton kernels for CUDA: InfoNCE in a few launches that do not wait for the GPU, whatever K.

Importing this package does not import Triton; calling `fused_losses` or `draw_ids` does. ``function`` is the autograd
function. ``lookup`` launches the kernels for negatives of each row's own, ``product`` those for shared negatives,
``counted`` turns the first case into the second. ``drawn_ids`` has ids that are drawn where they are read. The kernels
are in ``lookup_kernels``, ``product_kernels``, ``drawn_ids_kernels`` and ``softmax_parts``. ``deferred_errors`` reports
the bad values that they find.
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
"""Up to this width the products are as exact as the reference's (measured)."""
PLACES = 2**31
"""Positions of ids are counted in 32 bits."""
MAX_COUNT = 2**15 - 1
"""Most negatives of a row, since all of them may have the same id and counts have 16 bits."""
MAX_ROWS_PER_NEGATIVE = 16
"""Up to this many table rows per negative, counting the ids first is faster than looking each of them up (measured
forward and backward, at width 128), and needs no more memory than sorting them."""
MAX_COUNTED_WIDTH = 256
"""Largest width where that holds: wider vectors are multiplied in smaller tiles."""


def obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why the kernels cannot take tensors of this device and dtype, or None if they can."""
    if torch.compiler.is_compiling():
        return "torch.compile cannot trace the kernels"
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type != "cuda" and not interpreted:
        return f"the kernels run on CUDA (for tests also with TRITON_INTERPRET=1), and query is on {device}"
    if dtype == torch.float64:
        return "the kernels compute in float32, not in float64"
    if not _installed():
        return "the package 'triton' is not installed; type: pip install triton"
    return None


def too_large(layout: Layout | DrawnKeys, rows: int, width: int) -> str | None:
    """Why the kernels cannot take so many negatives, or None if they can."""
    if not isinstance(layout, SharedKeys) and layout.keys.requires_grad and rows * width >= PLACES:
        return f"the kernels count positions in 32 bits, and {rows:,} x {width:,} is too many"
    return None


def better_elsewhere(layout: Layout | DrawnKeys, query: Tensor) -> str | None:
    """Why another implementation is better for this layout, or None."""
    if not isinstance(layout, SharedKeys):
        return None
    if query.dtype == torch.float32 or layout.keys.dtype != query.dtype:
        return "float32 matrix products, which here never use tf32, are left to cuBLAS"
    if query.shape[1] > MAX_WIDTH:
        return f"above width {MAX_WIDTH:,} the accuracy of the kernels has not been measured"
    return None


def cannot_count(layout: Layout | DrawnKeys, query: Tensor, masking: Masking) -> str | None:
    """Why ids cannot be counted first, or None if they can."""
    if not isinstance(layout, TableKeys | DrawnKeys):
        return "it counts ids into a table, and there are no ids"
    if not len(layout.keys):
        return "the table is empty"
    if masking.log_q is not None:
        return "log_q corrects single draws, and counts do not keep those apart"
    if query.dtype != layout.keys.dtype or query.dtype not in (torch.bfloat16, torch.float16):
        return f"it multiplies bfloat16 or float16, not {query.dtype} and {layout.keys.dtype}"
    if masking.width > MAX_COUNT:
        return f"it counts to {MAX_COUNT:,}, and a row has {masking.width:,} negatives"
    return None


def worth_counting(layout: Layout | DrawnKeys, query: Tensor, masking: Masking) -> bool:
    """Whether counting the ids first is less work than looking each of them up.

    Only for a table that requires a gradient, since only then do the lookups sort the ids.
    """
    learns = layout.keys.requires_grad and torch.is_grad_enabled()
    few = len(layout.keys) <= MAX_ROWS_PER_NEGATIVE * masking.width and query.shape[1] <= MAX_COUNTED_WIDTH
    return learns and few and cannot_count(layout, query, masking) is None


def as_counted(layout: Layout | DrawnKeys) -> CountedKeys:
    """The same ids, to be counted first. Call it only if `cannot_count` returns None."""
    assert isinstance(layout, TableKeys | DrawnKeys)
    return CountedKeys(layout.keys, layout.draw if isinstance(layout, DrawnKeys) else layout.ids.contiguous())


def fused_losses(
    query: Tensor, positive: Tensor, temperature: float | Tensor, layout: Keys, masking: Masking, stats: bool
) -> RowLosses:
    """The loss of each row, from ``query`` and ``positive`` (B, D)."""
    from negwise.losses.fused import function

    return function.kernel_losses(query, positive, temperature, layout, masking, stats)


def draw_ids(draw: Draw) -> Tensor:
    """The same ids as ``draw.negatives()``, (B, K) int64, in one launch; 0 beyond each row's count."""
    reason = obstacle(draw.device, torch.float32)
    if reason is not None:
        raise InputError(f"draw_ids: {reason}. Type draw.negatives().ids")
    from negwise.losses.fused import drawn_ids

    return drawn_ids.launch_draw(draw)


@cache
def _installed() -> bool:
    there = importlib.util.find_spec("triton") is not None
    if not there and torch.cuda.is_available():
        warnings.warn("triton is not installed, so negwise's losses run in plain torch on CUDA", stacklevel=4)
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

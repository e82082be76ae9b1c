"""Many ids into a small table: count how often each row has each id, then treat the table as shared keys.

K lookups per row read K D numbers. If K is not far below M, computing all M scores of a row by a matrix product is less
work, and a draw adds only one count. Memory beside inputs and gradients: (B, M) counts of two bytes.

The kernel has one program per row. Ids are given, or drawn where they are counted. Counts are added up in memory, two
16-bit counts to each 32-bit word, the smallest size of an atomic add. They stay below 2^15, so that none overflows into
the other. They are integers, so the sum is the same in any order.

Shapes: B rows, K negatives each, M rows of the table.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from negwise.losses.fused import deferred_errors
from negwise.losses.fused.arguments import MaskArguments, next_power_of_two
from negwise.losses.fused.drawn_ids import DrawArguments, key_words
from negwise.losses.fused.lookup_kernels import read_limit, select_keys
from negwise.protocols import Draw

BLOCK = 1024
"""Most ids that are counted at once."""


def count_ids(keys: Tensor, ids: Tensor | Draw, masks: MaskArguments, rows: int, width: int) -> Tensor:
    """How often each row has each row of the table, (B, M) int16; -1 throughout a row with a bad id or count."""
    size = len(keys)
    flat = torch.zeros(
        rows * size + 1, dtype=torch.int16, device=keys.device
    )  # one more, so that the last 32-bit word is complete
    counted = flat[:-1].view(rows, size)
    if not counted.numel():
        return counted
    id_tensor, source, words = (
        (None, DrawArguments.of(ids), key_words(ids)) if isinstance(ids, Draw) else (ids, None, (0, 0, 0))
    )
    count_kernel[(rows,)](
        id_tensor, source, *words, masks.mask, masks.counts, masks.row_ids, counted,
        flat[: len(flat) // 2 * 2].view(torch.int32), deferred_errors.error_slots(keys.device), width, size,
        BLOCK=min(BLOCK, max(16, next_power_of_two(width))), DRAWN=source is not None,
    )  # fmt: skip
    return counted


@triton.jit(do_not_specialize=["k0", "k1", "step", "K", "M"])
def count_kernel(
    ids, draw, k0, k1, step, mask, counts, row_ids, key_counts, words, errors, K, M,
    BLOCK: tl.constexpr, DRAWN: tl.constexpr,
):  # fmt: skip
    """Add to ``key_counts`` (B, M) how often row b has each row of the table; -1 throughout if an id or count is bad.

    ``words`` is the same memory as 32-bit words. The first count is in the lower half.
    """
    b = tl.program_id(0).to(tl.int64)
    limit, beyond = read_limit(counts, errors, b, K, b >= 0)
    poison = tl.where(beyond, float("nan"), 0.0)
    own_id = b
    if row_ids is not None:
        own_id = tl.load(row_ids + b).to(tl.int64)
    for start in range(0, K, BLOCK):
        j = start + tl.arange(0, BLOCK)
        ok, row, poison = select_keys(
            ids, draw, k0, k1, step, mask, row_ids, None, None, errors, own_id, poison, b, j, K, limit, K, M, DRAWN
        )
        place = b * M + row
        tl.atomic_add(words + place // 2, tl.where(place % 2 == 0, 1, 1 << 16), mask=ok, sem="relaxed")
    if poison != 0:
        tl.debug_barrier()  # wait for the adds of the other threads of this program
        for start in range(0, M, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(key_counts + b * M + j, tl.full((BLOCK,), -1, key_counts.dtype.element_ty), mask=j < M)

"""How often each row drew each row of the table: one program per row, ids given or drawn where they are counted.

Counts are added up in memory, two of 16 bits to each word of 32, the smallest that a GPU adds to as one. They stay
below 2^15, so that none reaches into its neighbour. Whole numbers: the sum is the same in any order.

Shapes: B rows, K negatives each, M rows of the table.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from negwise.losses.fused.lookup_kernels import limit_of, which


@triton.jit(do_not_specialize=["k0", "k1", "step", "K", "M"])
def tally(
    ids, draw, k0, k1, step, mask, counts, row_ids, times, words, notes, K, M,
    BLOCK: tl.constexpr, DRAWN: tl.constexpr,
):  # fmt: skip
    """Add to ``times`` (B, M) how often row b sees each row of the table; -1 throughout where an id or count is wrong.

    ``words`` is the same memory by twos, the first one in the lower half.
    """
    b = tl.program_id(0).to(tl.int64)
    limit, beyond = limit_of(counts, notes, b, K, b >= 0)
    poison = tl.where(beyond, float("nan"), 0.0)
    name = b
    if row_ids is not None:
        name = tl.load(row_ids + b).to(tl.int64)
    for start in range(0, K, BLOCK):
        j = start + tl.arange(0, BLOCK)
        ok, row, poison = which(
            ids, draw, k0, k1, step, mask, row_ids, None, None, notes, name, poison, b, j, K, limit, K, M, DRAWN
        )
        place = b * M + row
        tl.atomic_add(words + place // 2, tl.where(place % 2 == 0, 1, 1 << 16), mask=ok, sem="relaxed")
    if poison != 0:
        tl.debug_barrier()  # what the others of this program added comes first
        for start in range(0, M, BLOCK):
            j = start + tl.arange(0, BLOCK)
            tl.store(times + b * M + j, tl.full((BLOCK,), -1, times.dtype.element_ty), mask=j < M)

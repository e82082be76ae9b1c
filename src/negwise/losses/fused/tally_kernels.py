"""How often each row drew each row of the table: one program per row, ids given or drawn where they are counted.

Shapes: B rows, K negatives each, M rows of the table.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from negwise.losses.fused.lookup_kernels import limit_of, which


@triton.jit(do_not_specialize=["k0", "k1", "step", "K", "M"])
def tally(
    ids, draw, k0, k1, step, mask, counts, row_ids, times, notes, K, M,
    BLOCK: tl.constexpr, BINS: tl.constexpr, DRAWN: tl.constexpr,
):  # fmt: skip
    """``times`` (B, M): how often row b sees each row of the table, -1 throughout where an id or a count is wrong.

    Places that hold nothing are counted in a bin beyond the table, so BINS is above M.
    """
    b = tl.program_id(0).to(tl.int64)
    limit, beyond = limit_of(counts, notes, b, K, b >= 0)
    poison = tl.where(beyond, float("nan"), 0.0)
    name = b
    if row_ids is not None:
        name = tl.load(row_ids + b).to(tl.int64)
    found = tl.zeros((BINS,), tl.int32)
    for start in range(0, K, BLOCK):
        j = start + tl.arange(0, BLOCK)
        ok, row, poison = which(
            ids, draw, k0, k1, step, mask, row_ids, None, None, notes, name, poison, b, j, K, limit, K, M, DRAWN
        )
        found += tl.histogram(tl.where(ok, row, BINS - 1).to(tl.int32), BINS)
    found = tl.where(poison == 0, found, -1)
    place = tl.arange(0, BINS)
    tl.store(times + b * M + place, found.to(times.dtype.element_ty), mask=place < M)

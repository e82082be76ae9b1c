"""Kernels for negatives of each row's own: each key is read once, in place, and B x K x D numbers never exist.

The forward pass has one program per row (and part of K). For the gradient of a table the ids are sorted. One program
per row of the table reads its key once, and every query that drew it, in sorted order, so that the sum has the same
bits each time. Ids that were drawn very often are first summed in parts of RUN positions.

Shapes: B rows, K negatives, M rows of a table, D width, N = B K.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from negwise.losses.fused.drawn_ids_kernels import draw_slots
from negwise.losses.fused.softmax_parts import LOG2E, inverse


@triton.jit
def select_keys(
    ids, draw, k0, k1, step, mask, row_ids, key_ids, used_ids, errors, own_id, poison, b, j, last, limit, K, M,
    DRAWN: tl.constexpr,
):  # fmt: skip
    """Which slots of a tile hold a negative of row b, and its row in the table."""
    ok = (j < last) & (j < limit)
    if mask is not None:
        ok = ok & (tl.load(mask + b * K + j, mask=ok, other=0) != 0)
    if ids is not None:
        row = tl.load(ids + b * K + j, mask=ok, other=0).to(tl.int64)
    elif DRAWN:
        row = draw_slots(draw, k0, k1, step, b, j, ok)
    else:
        row = b * K + j
    if row_ids is not None:
        if key_ids is not None:
            ids_here = tl.load(key_ids + b * K + j, mask=ok, other=0).to(tl.int64)
        else:
            ids_here = row
        ok = ok & (ids_here != own_id)
    if ids is not None:
        outside = ok & ((row < 0) | (row >= M))
        any_outside = tl.max(outside.to(tl.int32), 0) > 0
        if any_outside:
            tl.store(errors + 3, b)
            tl.store(errors + 4, tl.max(tl.where(outside, row, -(2**62)), 0))
            tl.store(errors + 5, M.to(tl.int64))
            tl.store(errors + 2, 1)
        poison = tl.where(any_outside, float("nan"), poison)
        ok = ok & (outside == 0)
    if used_ids is not None:
        held = row if DRAWN or ids is not None else 0
        tl.store(used_ids + b * K + j, tl.where(ok, held, M).to(tl.int32), mask=j < last)
    return ok, tl.where(ok, row, 0), poison


@triton.jit
def read_limit(counts, errors, b, K, report):
    """The number of negatives of row b, and whether it was out of range. That is recorded if ``report``."""
    limit = K
    beyond = K < 0
    if counts is not None:
        count = tl.load(counts + b).to(tl.int64)
        beyond = (count < 0) | (count > K)
        if beyond & report:
            tl.store(errors + 7, b)
            tl.store(errors + 8, count)
            tl.store(errors + 9, K.to(tl.int64))
            tl.store(errors + 6, 1)
        limit = tl.where(beyond, 0, count).to(tl.int32)
    return limit, beyond


@triton.jit(do_not_specialize=["k0", "k1", "step", "B", "K", "M", "span"])
def lookup_forward_kernel(
    query, positive, keys, ids, draw, k0, k1, step, mask, counts, row_ids, key_ids, log_q, temperatures, temperature,
    parts, accs, used_ids, errors, B, K, M, span,
    D: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr,
    STATS: tl.constexpr, QUERY_GRAD: tl.constexpr, DRAWN: tl.constexpr,
):  # fmt: skip
    """Columns ``[s span, (s + 1) span)`` of row b; ``parts`` and ``accs`` as in `merge_kernel`.

    The keys are a table, with ``ids`` or (if DRAWN) with ``draw``; else they are (B, K, D). ``used_ids`` (B, K): the id
    that was read, M where masked. The keys of the next tile load while a tile is computed, and their ids one tile
    earlier.
    """
    b = tl.program_id(0).to(tl.int64)
    s = tl.program_id(1)
    d = tl.arange(0, BLOCK_D)
    width = d < D
    lanes = tl.arange(0, BLOCK_K)
    q = tl.load(query + b * D + d, mask=width, other=0.0).to(tl.float32)
    # As a tile, so that it is summed in the same order as the keys: a key that equals the positive ties with it.
    own = positive + b * D + d[None, :] + tl.zeros((BLOCK_K, 1), tl.int64)
    own = tl.load(own, mask=width[None, :] & (lanes >= 0)[:, None], other=0.0).to(tl.float32)
    pos_scores = tl.sum(own * q[None, :], 1)
    pos_score = tl.max(pos_scores, 0) + tl.sum(pos_scores * 0, 0)  # tl.max ignores NaN
    inv = inverse(temperatures, temperature, b, b >= 0, STRIDE)

    limit, beyond = read_limit(counts, errors, b, K, s == 0)
    pos_score = tl.where(beyond, float("nan"), pos_score)
    own_id = b
    if row_ids is not None:
        own_id = tl.load(row_ids + b).to(tl.int64)

    top = pos_score
    best = pos_score
    total = 0.0
    n_above = 0.0
    n_pairs = 0.0
    poison = 0.0
    acc = tl.zeros((BLOCK_D,), tl.float32)
    first = s * span
    last = tl.minimum(first + span, K)
    j = first + lanes
    ok, row, poison = select_keys(
        ids, draw, k0, k1, step, mask, row_ids, key_ids, used_ids, errors, own_id, poison, b, j, last, limit, K, M,
        DRAWN,
    )  # fmt: skip
    k = tl.load(keys + row[:, None] * D + d[None, :], mask=ok[:, None] & width[None, :], other=0.0)
    j += BLOCK_K
    ahead_ok, row, poison = select_keys(
        ids, draw, k0, k1, step, mask, row_ids, key_ids, used_ids, errors, own_id, poison, b, j, last, limit, K, M,
        DRAWN,
    )  # fmt: skip
    for start in range(first, last, BLOCK_K):
        next_k = tl.load(keys + row[:, None] * D + d[None, :], mask=ahead_ok[:, None] & width[None, :], other=0.0)
        j = start + 2 * BLOCK_K + lanes
        next_ok = ahead_ok
        ahead_ok, row, poison = select_keys(
            ids, draw, k0, k1, step, mask, row_ids, key_ids, used_ids, errors, own_id, poison, b, j, last, limit, K, M,
            DRAWN,
        )  # fmt: skip
        wide = k.to(tl.float32)
        score = tl.where(ok, tl.sum(wide * q[None, :], 1), float("-inf"))
        t = score
        if log_q is not None:
            best = tl.maximum(best, tl.max(score, 0))
            shift = log_q + (b * K if PER_ROW_Q else 0) + start + lanes
            t = tl.where(ok, score - tl.load(shift, mask=ok, other=0.0).to(tl.float32) / inv, float("-inf"))
        poison += tl.sum(tl.where(ok, t * 0, 0.0), 0)
        new_top = tl.maximum(top, tl.max(t, 0))
        power = tl.exp2(inv * LOG2E * (t - new_top))
        rescale = tl.exp2(inv * LOG2E * (top - new_top))
        total = total * rescale + tl.sum(power, 0)
        if QUERY_GRAD:
            acc = acc * rescale + tl.sum(power[:, None] * wide, 0)
        if STATS:
            n_above += tl.sum((score > pos_score).to(tl.float32) + (score >= pos_score).to(tl.float32), 0)
        n_pairs += tl.sum(ok.to(tl.float32), 0)
        top = new_top
        ok = next_ok
        k = next_k

    at = parts + s.to(tl.int64) * B + b
    size = tl.num_programs(1).to(tl.int64) * B
    tl.store(at, top)
    tl.store(at + size, total)
    tl.store(at + 2 * size, total)
    tl.store(at + 3 * size, 0.5 * n_above)
    tl.store(at + 4 * size, n_pairs)
    tl.store(at + 5 * size, poison)
    tl.store(at + 6 * size, pos_score)
    tl.store(at + 7 * size, top if log_q is None else best)
    if QUERY_GRAD:
        tl.store(accs + (s.to(tl.int64) * B + b) * D + d, acc, mask=width)


@triton.jit(do_not_specialize=["N"])
def mark_runs_kernel(sorted_ids, begins, ends, N, BLOCK: tl.constexpr):
    """Where the run of each id begins and ends in the sorted ids. Both stay 0 for an id without a run."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = tl.load(sorted_ids + i, mask=i < N, other=0)
    before = tl.load(sorted_ids + i - 1, mask=(i > 0) & (i < N), other=0)
    after = tl.load(sorted_ids + i + 1, mask=i + 1 < N, other=0)
    tl.store(begins + here, i.to(tl.int32), mask=(i < N) & ((i == 0) | (before != here)))
    tl.store(ends + here, (i + 1).to(tl.int32), mask=(i < N) & ((i + 1 == N) | (after != here)))


@triton.jit
def _add_shares(
    out, key, order, first, last, query, saved, rates, temperatures, temperature, log_q, K, d, width,
    D: tl.constexpr, BLOCK: tl.constexpr, STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr,
):  # fmt: skip
    """``out`` plus the sum of ``share_b query_b`` over the sorted positions from ``first`` to ``last``."""
    for start in range(first, last, BLOCK):
        i = start + tl.arange(0, BLOCK)
        ok = i < last
        flat = tl.load(order + i, mask=ok, other=0)
        b = flat // K
        q = tl.load(query + b[:, None] * D + d[None, :], mask=ok[:, None] & width[None, :], other=0.0).to(tl.float32)
        top = tl.load(saved + b, mask=ok, other=0.0)
        rate = tl.load(rates + b, mask=ok, other=0.0)
        inv = inverse(temperatures, temperature, b, ok, STRIDE)
        t = tl.sum(q * key[None, :], 1)
        if log_q is not None:
            t -= tl.load(log_q + (flat if PER_ROW_Q else flat - b * K), mask=ok, other=0.0).to(tl.float32) / inv
        share = tl.where(ok, tl.exp2(inv * LOG2E * (t - top)) * rate, 0.0)
        out += tl.sum(share[:, None] * q, 0)
    return out


@triton.jit(do_not_specialize=["K", "M"])
def sum_runs_kernel(
    keys, sorted_ids, order, query, saved, rates, temperatures, temperature, log_q, sums, K, M,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
    STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr,
):  # fmt: skip
    """``sums`` (N // RUN, D): the sum over RUN sorted positions from c RUN on, if all have the same id."""
    c = tl.program_id(0)
    first = tl.load(sorted_ids + c.to(tl.int64) * RUN)
    if (first < M) & (first == tl.load(sorted_ids + c.to(tl.int64) * RUN + RUN - 1)):
        d = tl.arange(0, BLOCK_D)
        width = d < D
        key = tl.load(keys + first.to(tl.int64) * D + d, mask=width, other=0.0).to(tl.float32)
        key_grad = _add_shares(
            tl.zeros((BLOCK_D,), tl.float32), key, order, c * RUN, c * RUN + RUN, query, saved, rates,
            temperatures, temperature, log_q, K, d, width, D, BLOCK, STRIDE, PER_ROW_Q,
        )  # fmt: skip
        tl.store(sums + c.to(tl.int64) * D + d, key_grad, mask=width)


@triton.jit(do_not_specialize=["K", "M"])
def table_gradient_kernel(
    keys, begins, ends, order, query, saved, rates, temperatures, temperature, log_q, sums, out, K, M,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK: tl.constexpr, RUN: tl.constexpr,
    STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr,
):  # fmt: skip
    """Write all of ``out`` (M, D): the sum over the run of each row. Whole parts of RUN come from ``sums``."""
    d = tl.arange(0, BLOCK_D)
    width = d < D
    stride = tl.full((BLOCK_D,), D, tl.int64)
    for row in range(tl.program_id(0), M, tl.num_programs(0)):
        begin = tl.load(begins + row)
        end = tl.load(ends + row)
        key_grad = tl.zeros((BLOCK_D,), tl.float32)
        if end > begin:
            key = tl.load(keys + row * stride + d, mask=width, other=0.0).to(tl.float32)
            whole = (begin + RUN - 1) // RUN
            until = tl.maximum(end // RUN, whole)
            split = until > whole
            key_grad = _add_shares(
                key_grad, key, order, begin, tl.where(split, whole * RUN, end), query, saved, rates,
                temperatures, temperature, log_q, K, d, width, D, BLOCK, STRIDE, PER_ROW_Q,
            )  # fmt: skip
            if split:
                for start in range(whole, until, BLOCK):
                    c = start + tl.arange(0, BLOCK)
                    part = sums + c.to(tl.int64)[:, None] * D + d[None, :]
                    key_grad += tl.sum(tl.load(part, mask=(c < until)[:, None] & width[None, :], other=0.0), 0)
                key_grad = _add_shares(
                    key_grad, key, order, until * RUN, end, query, saved, rates,
                    temperatures, temperature, log_q, K, d, width, D, BLOCK, STRIDE, PER_ROW_Q,
                )  # fmt: skip
        tl.store(out + row * stride + d, key_grad.to(out.dtype.element_ty), mask=width)


@triton.jit(do_not_specialize=["K"])
def per_row_gradient_kernel(
    keys, used_ids, query, saved, rates, temperatures, temperature, log_q, out, K,
    D: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr,
):  # fmt: skip
    """Write all of ``out`` (B, K, D): the gradient of keys that belong to one row."""
    b = tl.program_id(0).to(tl.int64)
    j = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    d = tl.arange(0, BLOCK_D)
    width = d < D
    inside = (j < K)[:, None] & width[None, :]
    flat = b * K + j
    ok = tl.load(used_ids + flat, mask=j < K, other=1) == 0
    q = tl.load(query + b * D + d, mask=width, other=0.0).to(tl.float32)
    k = tl.load(keys + flat[:, None] * D + d[None, :], mask=ok[:, None] & width[None, :], other=0.0).to(tl.float32)
    inv = inverse(temperatures, temperature, b, b >= 0, STRIDE)
    t = tl.sum(k * q[None, :], 1)
    if log_q is not None:
        t -= tl.load(log_q + (flat if PER_ROW_Q else j), mask=ok, other=0.0).to(tl.float32) / inv
    share = tl.where(ok, tl.exp2(inv * LOG2E * (t - tl.load(saved + b))) * tl.load(rates + b), 0.0)
    tl.store(out + flat[:, None] * D + d[None, :], (share[:, None] * q[None, :]).to(out.dtype.element_ty), mask=inside)

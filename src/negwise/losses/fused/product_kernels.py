"""Kernels for negatives that all rows share: two matrix products per tile, as in attention, on the tensor cores.

The forward pass is split over K to fill the GPU; `merge_kernel` merges the parts of a row. For the gradient of the keys
a program keeps a tile of keys and loops over the rows, split in the same way.

bfloat16 and float16 are multiplied as they are and summed in float32. Shares of keys are rounded to bfloat16, as in
attention. If the inputs are float16, shares are rounded to tf32, since they exceed the range of float16 (float16 itself
fits into tf32). float32 is multiplied in float32, never in tf32.

``key_counts`` (B, K), if given, says how often each row drew each key. A key's share, its pair and its win are
multiplied by that. A count below 0 makes the row NaN.

Shapes: B rows, K negatives, D width; a tile is BLOCK_B x BLOCK_K.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from negwise.losses.fused.softmax_parts import LOG2E, inverse


@triton.jit
def _round_shares(shares, like):
    """Shares, rounded for a product with vectors of this dtype."""
    if like.dtype == tl.bfloat16:
        result = shares.to(tl.bfloat16)
    elif like.dtype == tl.float16:  # to tf32, by hand, so that the bits that tensor cores truncate are 0
        result = ((shares.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    else:
        result = shares
    return result


@triton.jit
def _add_weighted(shares, vectors, out):
    """``out + shares @ vectors``. The shares come from `_round_shares`."""
    if vectors.dtype == tl.float16:
        result = tl.dot(shares, vectors.to(tl.float32), out, input_precision="tf32")
    else:
        result = tl.dot(shares, vectors, out, input_precision="ieee")
    return result


@triton.jit
def _dot_in_parts(
    left, m, m_ok, right, n, n_ok, like,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """``left_m . right_n`` (M, N), PART columns at a time, so that no sum with truncation or rounding is long.

    Both are read again, since a tile cannot be cut. The result is 0 where ``m_ok`` or ``n_ok`` is False.
    """
    result = tl.zeros((M, N), tl.float32)
    for first in range(0, D, PART):
        e = first + tl.arange(0, PART)
        wide = (e < D)[None, :]
        x = tl.load(left + m.to(tl.int64)[:, None] * D + e[None, :], mask=m_ok[:, None] & wide, other=0.0)
        y = tl.load(right + n.to(tl.int64)[:, None] * D + e[None, :], mask=n_ok[:, None] & wide, other=0.0)
        part = tl.dot(x.to(like.dtype), tl.trans(y.to(like.dtype)), input_precision="ieee")
        result += tl.where(m_ok[:, None], part, 0.0)  # a plain sum would be compiled to one long product again
    return result


@triton.jit
def _allowed(mask, limits, own_ids, key_ids, b, j, inside, K, OWN: tl.constexpr):
    """The mask of a tile. ``b`` and ``j`` broadcast, with rows first or columns first."""
    ok = inside & (j < limits)
    if mask is not None:
        ok = ok & (tl.load(mask + b * K + j, mask=ok, other=0) != 0)
    if key_ids is not None:
        ok = ok & (tl.load(key_ids + j, mask=j < K, other=0).to(tl.int64) != own_ids)
    if OWN:
        ok = ok & (j != b)
    return ok


@triton.jit
def _split_range(first, last, start, size: tl.constexpr, step: tl.constexpr, DENSE: tl.constexpr, OWN: tl.constexpr):
    """Split ``[first, last)``: ``[low, high)`` and ``[edge, last)`` need a mask, the rest does not.

    ``[low, high)`` are the steps that overlap ``[start, start + size)``, where rows meet their own positive.
    """
    last = tl.maximum(first, last)
    edge = first
    if DENSE:
        edge = first + (last - first) // step * step
    low = edge
    high = edge
    if OWN:
        low = tl.minimum(tl.maximum(start // step * step, first), edge)
        high = tl.maximum(tl.minimum((start + size + step - 1) // step * step, edge), low)
    return low, high, edge, last


@triton.jit
def _forward_tiles(
    carry, query, keys, key_counts, mask, limits, own_ids, key_ids, log_q, b, inside, q, pos_score, c,
    first, last, jump, by, stop, K,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    PER_ROW_Q: tl.constexpr, STATS: tl.constexpr, QUERY_GRAD: tl.constexpr, WHOLE: tl.constexpr, CLEAN: tl.constexpr,
    OWN: tl.constexpr,
):  # fmt: skip
    """Tiles from ``first`` to ``last``; those from ``jump`` on are ``by`` further. ``WHOLE``: no tile needs a mask."""
    top, best, total, rounded_total, n_above, n_pairs, poison, acc = carry
    d = tl.arange(0, BLOCK_D)
    lanes = tl.arange(0, BLOCK_K)
    offsets = lanes[:, None] * D + d[None, :]
    for place in range(first, last, BLOCK_K):
        start = place + tl.where(place >= jump, by, 0)
        j = start + lanes
        at = keys + start.to(tl.int64) * D + offsets
        there = j < K
        if WHOLE:
            if D == BLOCK_D:
                k = tl.load(at)
            else:
                k = tl.load(at, mask=(d < D)[None, :], other=0.0)
        else:
            k = tl.load(at, mask=(j < stop)[:, None] & (d < D)[None, :], other=0.0)
            within = inside[:, None] & (j < stop)[None, :]
            if key_counts is None:
                ok = _allowed(mask, limits[:, None], own_ids, key_ids, b[:, None], j[None, :], within, K, OWN)
            else:
                multiple = tl.load(key_counts + b[:, None] * K + j[None, :], mask=within, other=0).to(tl.float32)
                poison += tl.sum(tl.where(multiple < 0, float("nan"), 0.0), 1)
                multiple = tl.maximum(multiple, 0.0)
                ok = multiple > 0
            there = j < stop
            if CLEAN:  # a key that is masked for all rows becomes 0: 0 * inf would reach every row
                there = tl.max(ok.to(tl.int32), 0) > 0
                k = tl.where(there[:, None], k, 0.0).to(keys.dtype.element_ty)
        k = k.to(q.dtype)
        if PART == BLOCK_D:
            score = tl.dot(q, tl.trans(k), input_precision="ieee")
        else:
            score = _dot_in_parts(query, b, inside, keys, j, there, q, D, BLOCK_B, BLOCK_K, PART)
        if not WHOLE:
            if not QUERY_GRAD:
                poison += tl.sum(tl.where(ok, score * 0, 0.0), 1)
            score = tl.where(ok, score, float("-inf"))
            n_pairs += tl.sum(ok.to(tl.float32) if key_counts is None else multiple, 1)
        elif not QUERY_GRAD:
            poison += tl.sum(score * 0, 1)
        if STATS:
            lost = tl.where(score > pos_score[:, None], 1.0, tl.where(score == pos_score[:, None], 0.5, 0.0))
            if key_counts is not None:
                lost *= multiple
            n_above += tl.sum(lost, 1)
        t = score
        if log_q is not None:
            best = tl.maximum(best, tl.max(score, 1))
            shift = log_q + (b[:, None] * K + j[None, :] if PER_ROW_Q else j[None, :])
            shift = tl.load(shift, mask=inside[:, None] & (j < stop)[None, :], other=0.0).to(tl.float32)
            t -= shift * LOG2E / c[:, None]
            if not WHOLE:
                t = tl.where(ok, t, float("-inf"))
        new_top = tl.maximum(top, tl.max(t, 1))
        power = tl.exp2(c[:, None] * (t - new_top[:, None]))
        if key_counts is not None:
            power *= multiple
        rescale = tl.exp2(c * (top - new_top))
        total = total * rescale + tl.sum(power, 1)
        if QUERY_GRAD:
            power = _round_shares(power, k)
            rounded_total = rounded_total * rescale + tl.sum(power.to(tl.float32), 1)
            acc = _add_weighted(power, k, acc * rescale[:, None])
        top = new_top
    if WHOLE:
        n_pairs += tl.maximum(last - first, 0)
    return top, best, total, rounded_total, n_above, n_pairs, poison, acc


@triton.jit(do_not_specialize=["B", "K", "span"])
def product_forward_kernel(
    query, positive, keys, key_counts, mask, counts, row_ids, key_ids, log_q, temperatures, temperature,
    parts, accs, errors, B, K, span,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr, STATS: tl.constexpr, QUERY_GRAD: tl.constexpr,
    DENSE: tl.constexpr, CLEAN: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """Columns ``[s span, (s + 1) span)`` of a tile of rows; ``parts`` and ``accs`` as in `merge_kernel`.

    ``DENSE``: nothing is masked, except column b of row b if ``OWN``. ``span`` is a multiple of BLOCK_K.
    """
    s = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_B
    b = start.to(tl.int64) + tl.arange(0, BLOCK_B)
    inside = b < B
    d = tl.arange(0, BLOCK_D)
    tile = inside[:, None] & (d < D)[None, :]
    pos_score = tl.zeros((BLOCK_B,), tl.float32)
    for column in range(0, D, 16):  # a few columns at a time, since whole rows in float32 do not fit into registers
        e = column + tl.arange(0, 16)
        part = inside[:, None] & (e < D)[None, :]
        ours = tl.load(query + b[:, None] * D + e[None, :], mask=part, other=0.0).to(tl.float32)
        pos_score += tl.sum(
            ours * tl.load(positive + b[:, None] * D + e[None, :], mask=part, other=0.0).to(tl.float32), 1
        )
    q = tl.load(query + b[:, None] * D + d[None, :], mask=tile, other=0.0)
    if q.dtype != keys.dtype.element_ty:
        q = q.to(tl.float32)
    c = inverse(temperatures, temperature, b, inside, STRIDE) * LOG2E
    first = s * span
    last = tl.minimum(first + span, K)
    limits = tl.zeros((BLOCK_B,), tl.int32) + K
    if counts is not None:
        count = tl.load(counts + b, mask=inside, other=0).to(tl.int64)
        beyond = (count < 0) | (count > K)
        one = tl.max(tl.where(beyond, b, -1), 0)  # a row with a bad count, or -1
        tl.store(errors + 7, one, mask=one >= 0)
        tl.store(errors + 8, tl.sum(tl.where(b == one, count, 0), 0), mask=one >= 0)
        tl.store(errors + 9, K.to(tl.int64), mask=one >= 0)
        tl.store(errors + 6, 1, mask=one >= 0)
        pos_score = tl.where(beyond, float("nan"), pos_score)
        limits = tl.where(beyond, 0, count).to(tl.int32)
        last = tl.minimum(last, tl.max(limits, 0))
    own_ids = 0
    if row_ids is not None:
        own_ids = tl.load(row_ids + b, mask=inside, other=0).to(tl.int64)[:, None]

    zero = tl.zeros((BLOCK_B,), tl.float32)
    acc = tl.zeros((BLOCK_B, BLOCK_D if QUERY_GRAD else 1), tl.float32)
    carry = (pos_score, pos_score, zero, zero, zero, zero, zero, acc)
    low, high, edge, last = _split_range(first, last, start, BLOCK_B, BLOCK_K, DENSE, OWN)
    if DENSE:
        carry = _forward_tiles(
            carry, query, keys, key_counts, mask, limits, own_ids, key_ids, log_q, b, inside, q, pos_score, c,
            first, edge - (high - low), low, high - low, edge, K,
            D, BLOCK_B, BLOCK_K, BLOCK_D, PART, PER_ROW_Q, STATS, QUERY_GRAD, True, False, OWN,
        )  # fmt: skip
    top, best, total, rounded_total, n_above, n_pairs, poison, acc = _forward_tiles(
        carry, query, keys, key_counts, mask, limits, own_ids, key_ids, log_q, b, inside, q, pos_score, c,
        low, high + (last - edge), high, edge - high, last, K,
        D, BLOCK_B, BLOCK_K, BLOCK_D, PART, PER_ROW_Q, STATS, QUERY_GRAD, False, CLEAN, OWN,
    )  # fmt: skip

    at = parts + s.to(tl.int64) * B + b
    size = tl.num_programs(1).to(tl.int64) * B
    tl.store(at, top, mask=inside)
    tl.store(at + size, total, mask=inside)
    tl.store(at + 2 * size, rounded_total, mask=inside)
    tl.store(at + 3 * size, n_above, mask=inside)
    tl.store(at + 4 * size, n_pairs, mask=inside)
    tl.store(at + 5 * size, poison, mask=inside)
    tl.store(at + 6 * size, pos_score, mask=inside)
    tl.store(at + 7 * size, top if log_q is None else best, mask=inside)
    if QUERY_GRAD:
        tl.store(accs + (s.to(tl.int64) * B + b)[:, None] * D + d[None, :], acc, mask=tile)


@triton.jit
def _backward_tiles(
    key_grad, query, keys, key_counts, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, saved, rates,
    k, j, first, last, jump, by, stop, K,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr, WHOLE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """Add rows from ``first`` to ``last`` to the gradient of a tile of keys. Arguments as in `_forward_tiles`."""
    d = tl.arange(0, BLOCK_D)
    lanes = tl.arange(0, BLOCK_B)
    offsets = lanes[:, None] * D + d[None, :]
    for place in range(first, last, BLOCK_B):
        start = place + tl.where(place >= jump, by, 0)
        b = start.to(tl.int64) + lanes
        inside = b < stop
        at = query + start.to(tl.int64) * D + offsets
        if WHOLE and D == BLOCK_D:
            q = tl.load(at).to(k.dtype)
        else:
            q = tl.load(at, mask=inside[:, None] & (d < D)[None, :], other=0.0).to(k.dtype)
        top = tl.load(saved + b, mask=inside, other=0.0)
        rate = tl.load(rates + b, mask=inside, other=0.0)
        c = inverse(temperatures, temperature, b, inside, STRIDE) * LOG2E
        if PART == BLOCK_D:
            t = tl.dot(k, tl.trans(q), input_precision="ieee")
        else:
            t = _dot_in_parts(keys, j, j < K, query, b, inside, k, D, BLOCK_K, BLOCK_B, PART)
        if log_q is not None:
            shift = log_q + (b[None, :] * K + j[:, None] if PER_ROW_Q else j[:, None])
            shift = tl.load(shift, mask=inside[None, :] & (j < K)[:, None], other=0.0).to(tl.float32)
            t -= shift * LOG2E / c[None, :]
        share = tl.exp2(c[None, :] * (t - top[None, :])) * rate[None, :]
        if key_counts is not None:
            multiple = tl.load(
                key_counts + b[None, :] * K + j[:, None], mask=inside[None, :] & (j < K)[:, None], other=0
            )
            share = tl.where(multiple > 0, share * multiple.to(tl.float32), 0.0)
        elif not WHOLE:
            limits = tl.zeros((BLOCK_B,), tl.int32) + K
            if counts is not None:
                limits = tl.load(counts + b, mask=inside, other=0).to(tl.int32)
            own_ids = 0
            if row_ids is not None:
                own_ids = tl.load(row_ids + b, mask=inside, other=0).to(tl.int64)[None, :]
            within = inside[None, :] & (j < K)[:, None]
            ok = _allowed(mask, limits[None, :], own_ids, key_ids, b[None, :], j[:, None], within, K, OWN)
            share = tl.where(ok, share, 0.0)
        key_grad = _add_weighted(_round_shares(share, q), q, key_grad)
    return key_grad


@triton.jit(do_not_specialize=["B", "K", "span"])
def product_backward_kernel(
    query, keys, key_counts, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, saved, rates, out,
    B, K, span,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STRIDE: tl.constexpr, PER_ROW_Q: tl.constexpr, DENSE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``out`` (S, K, D): the gradient of a tile of keys from rows ``[s span, (s + 1) span)``."""
    s = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_K
    j = start + tl.arange(0, BLOCK_K)
    d = tl.arange(0, BLOCK_D)
    tile = (j < K)[:, None] & (d < D)[None, :]
    k = tl.load(keys + j.to(tl.int64)[:, None] * D + d[None, :], mask=tile, other=0.0)
    if k.dtype != query.dtype.element_ty:
        k = k.to(tl.float32)
    first = s * span
    low, high, edge, last = _split_range(first, tl.minimum(first + span, B), start, BLOCK_K, BLOCK_B, DENSE, OWN)
    key_grad = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    if DENSE:
        key_grad = _backward_tiles(
            key_grad, query, keys, key_counts, mask, counts, row_ids, key_ids, log_q, temperatures, temperature,
            saved, rates, k, j, first, edge - (high - low), low, high - low, edge, K,
            D, BLOCK_B, BLOCK_K, BLOCK_D, PART, STRIDE, PER_ROW_Q, True, OWN,
        )  # fmt: skip
    key_grad = _backward_tiles(
        key_grad, query, keys, key_counts, mask, counts, row_ids, key_ids, log_q, temperatures, temperature,
        saved, rates, k, j, low, high + (last - edge), high, edge - high, last, K,
        D, BLOCK_B, BLOCK_K, BLOCK_D, PART, STRIDE, PER_ROW_Q, False, OWN,
    )  # fmt: skip
    at = out + (s.to(tl.int64) * K + j)[:, None] * D + d[None, :]
    tl.store(at, key_grad.to(out.dtype.element_ty), mask=tile)

"""All rows share their negatives: two matrix products per tile, as in attention, on the tensor cores.

The forward pass is split over K as far as it takes to fill the GPU; parts of a row merge in `settle`. The gradient of
the keys is the same turned around: a program holds a tile of keys and walks over the rows, split likewise.

bfloat16 and float16 are multiplied as they are and added up in float32. Shares of keys are rounded to bfloat16, as in
attention; to tf32 where the inputs are float16, whose range they leave (float16 itself fits into tf32). float32 is
multiplied in float32, never in tf32.

``times`` (B, K), where there are any, say how often each row drew each key: a key's share is multiplied by that, and so
are its pair and its win. Below 0 it makes the row NaN.

Shapes: B rows, K negatives, D width; a tile is BLOCK_B x BLOCK_K.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

from negwise.losses.fused.online import LOG2E, inverse


@triton.jit
def _rounded(shares, like):
    """Shares as they are multiplied with vectors like these."""
    if like.dtype == tl.bfloat16:
        found = shares.to(tl.bfloat16)
    elif like.dtype == tl.float16:  # to tf32, by hand: what the tensor cores cut off is then zero
        found = ((shares.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)
    else:
        found = shares
    return found


@triton.jit
def _weigh(shares, vectors, onto):
    """``onto + shares @ vectors``, the shares `_rounded`."""
    if vectors.dtype == tl.float16:
        found = tl.dot(shares, vectors.to(tl.float32), onto, input_precision="tf32")
    else:
        found = tl.dot(shares, vectors, onto, input_precision="ieee")
    return found


@triton.jit
def _in_parts(
    left, m, m_ok, right, n, n_ok, like,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """``left_m . right_n`` (M, N), PART columns at a time: no sum is long where each step cuts off or rounds.

    Both are read once more, since a tile cannot be cut; what ``m_ok`` or ``n_ok`` leave out is 0.
    """
    found = tl.zeros((M, N), tl.float32)
    for first in range(0, D, PART):
        e = first + tl.arange(0, PART)
        wide = (e < D)[None, :]
        x = tl.load(left + m.to(tl.int64)[:, None] * D + e[None, :], mask=m_ok[:, None] & wide, other=0.0)
        y = tl.load(right + n.to(tl.int64)[:, None] * D + e[None, :], mask=n_ok[:, None] & wide, other=0.0)
        part = tl.dot(x.to(like.dtype), tl.trans(y.to(like.dtype)), input_precision="ieee")
        found += tl.where(m_ok[:, None], part, 0.0)  # of a plain sum the compiler would make one long product again
    return found


@triton.jit
def _allowed(mask, limits, names, key_ids, b, j, inside, K, OWN: tl.constexpr):
    """Which of a tile are seen; ``b`` and ``j`` are broadcast against each other, rows before or after columns."""
    ok = inside & (j < limits)
    if mask is not None:
        ok = ok & (tl.load(mask + b * K + j, mask=ok, other=0) != 0)
    if key_ids is not None:
        ok = ok & (tl.load(key_ids + j, mask=j < K, other=0).to(tl.int64) != names)
    if OWN:
        ok = ok & (j != b)
    return ok


@triton.jit
def _parts(first, last, start, size: tl.constexpr, step: tl.constexpr, DENSE: tl.constexpr, OWN: tl.constexpr):
    """Cut ``[first, last)`` into what is seen whole and what needs a look: ``[low, high)`` and ``[edge, last)``.

    ``[low, high)`` are the steps that hold some of ``[start, start + size)``, where rows meet their own positive.
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
def _sweep(
    carry, query, keys, times, mask, limits, names, key_ids, log_q, b, inside, q, raw, c,
    first, last, jump, by, stop, K,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    PER_ROW_Q: tl.constexpr, STATS: tl.constexpr, PULL: tl.constexpr, WHOLE: tl.constexpr, CLEAN: tl.constexpr,
    OWN: tl.constexpr,
):  # fmt: skip
    """Tiles from ``first`` to ``last``, those from ``jump`` on ``by`` further; ``WHOLE``: each row sees all of each."""
    top, total, weighed, beaten, seen, poison, pull = carry
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
            if times is None:
                ok = _allowed(mask, limits[:, None], names, key_ids, b[:, None], j[None, :], within, K, OWN)
            else:
                often = tl.load(times + b[:, None] * K + j[None, :], mask=within, other=0).to(tl.float32)
                poison += tl.sum(tl.where(often < 0, float("nan"), 0.0), 1)
                often = tl.maximum(often, 0.0)
                ok = often > 0
            there = j < stop
            if CLEAN:  # what no row of the tile sees is not looked at: 0 * inf would be seen by all
                there = tl.max(ok.to(tl.int32), 0) > 0
                k = tl.where(there[:, None], k, 0.0).to(keys.dtype.element_ty)
        k = k.to(q.dtype)
        if PART == BLOCK_D:
            score = tl.dot(q, tl.trans(k), input_precision="ieee")
        else:
            score = _in_parts(query, b, inside, keys, j, there, q, D, BLOCK_B, BLOCK_K, PART)
        if not WHOLE:
            if not PULL:
                poison += tl.sum(tl.where(ok, score * 0, 0.0), 1)
            score = tl.where(ok, score, float("-inf"))
            seen += tl.sum(ok.to(tl.float32) if times is None else often, 1)
        elif not PULL:
            poison += tl.sum(score * 0, 1)
        if STATS:
            lost = tl.where(score > raw[:, None], 1.0, tl.where(score == raw[:, None], 0.5, 0.0))
            if times is not None:
                lost *= often
            beaten += tl.sum(lost, 1)
        t = score
        if log_q is not None:
            shift = log_q + (b[:, None] * K + j[None, :] if PER_ROW_Q else j[None, :])
            shift = tl.load(shift, mask=inside[:, None] & (j < stop)[None, :], other=0.0).to(tl.float32)
            t -= shift * LOG2E / c[:, None]
            if not WHOLE:
                t = tl.where(ok, t, float("-inf"))
        higher = tl.maximum(top, tl.max(t, 1))
        power = tl.exp2(c[:, None] * (t - higher[:, None]))
        if times is not None:
            power *= often
        shrink = tl.exp2(c * (top - higher))
        total = total * shrink + tl.sum(power, 1)
        if PULL:
            power = _rounded(power, k)
            weighed = weighed * shrink + tl.sum(power.to(tl.float32), 1)
            pull = _weigh(power, k, pull * shrink[:, None])
        top = higher
    if WHOLE:
        seen += tl.maximum(last - first, 0)
    return top, total, weighed, beaten, seen, poison, pull


@triton.jit(do_not_specialize=["B", "K", "span"])
def multiply(
    query, positive, keys, times, mask, counts, row_ids, key_ids, log_q, temperatures, temperature,
    parts, pulls, notes, B, K, span,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STEP: tl.constexpr, PER_ROW_Q: tl.constexpr, STATS: tl.constexpr, PULL: tl.constexpr,
    DENSE: tl.constexpr, CLEAN: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """Columns ``[s span, (s + 1) span)`` of a tile of rows; ``parts`` and ``pulls`` as in `settle`.

    ``DENSE``: every row sees every column, but with ``OWN`` not that of its own number. ``span`` is in whole BLOCK_K.
    """
    s = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_B
    b = start.to(tl.int64) + tl.arange(0, BLOCK_B)
    inside = b < B
    d = tl.arange(0, BLOCK_D)
    tile = inside[:, None] & (d < D)[None, :]
    raw = tl.zeros((BLOCK_B,), tl.float32)
    for column in range(0, D, 16):  # a few columns at a time: whole rows in float32 would not fit into registers
        e = column + tl.arange(0, 16)
        part = inside[:, None] & (e < D)[None, :]
        ours = tl.load(query + b[:, None] * D + e[None, :], mask=part, other=0.0).to(tl.float32)
        raw += tl.sum(ours * tl.load(positive + b[:, None] * D + e[None, :], mask=part, other=0.0).to(tl.float32), 1)
    q = tl.load(query + b[:, None] * D + d[None, :], mask=tile, other=0.0)
    if q.dtype != keys.dtype.element_ty:
        q = q.to(tl.float32)
    c = inverse(temperatures, temperature, b, inside, STEP) * LOG2E
    first = s * span
    last = tl.minimum(first + span, K)
    limits = tl.zeros((BLOCK_B,), tl.int32) + K
    if counts is not None:
        count = tl.load(counts + b, mask=inside, other=0).to(tl.int64)
        beyond = (count < 0) | (count > K)
        one = tl.max(tl.where(beyond, b, -1), 0)  # a row that is wrong, if there is one
        tl.store(notes + 7, one, mask=one >= 0)
        tl.store(notes + 8, tl.sum(tl.where(b == one, count, 0), 0), mask=one >= 0)
        tl.store(notes + 9, K.to(tl.int64), mask=one >= 0)
        tl.store(notes + 6, 1, mask=one >= 0)
        raw = tl.where(beyond, float("nan"), raw)
        limits = tl.where(beyond, 0, count).to(tl.int32)
        last = tl.minimum(last, tl.max(limits, 0))
    names = 0
    if row_ids is not None:
        names = tl.load(row_ids + b, mask=inside, other=0).to(tl.int64)[:, None]

    zero = tl.zeros((BLOCK_B,), tl.float32)
    carry = (raw, zero, zero, zero, zero, zero, tl.zeros((BLOCK_B, BLOCK_D if PULL else 1), tl.float32))
    low, high, edge, last = _parts(first, last, start, BLOCK_B, BLOCK_K, DENSE, OWN)
    if DENSE:
        carry = _sweep(
            carry, query, keys, times, mask, limits, names, key_ids, log_q, b, inside, q, raw, c,
            first, edge - (high - low), low, high - low, edge, K,
            D, BLOCK_B, BLOCK_K, BLOCK_D, PART, PER_ROW_Q, STATS, PULL, True, False, OWN,
        )  # fmt: skip
    top, total, weighed, beaten, seen, poison, pull = _sweep(
        carry, query, keys, times, mask, limits, names, key_ids, log_q, b, inside, q, raw, c,
        low, high + (last - edge), high, edge - high, last, K,
        D, BLOCK_B, BLOCK_K, BLOCK_D, PART, PER_ROW_Q, STATS, PULL, False, CLEAN, OWN,
    )  # fmt: skip

    at = parts + s.to(tl.int64) * B + b
    size = tl.num_programs(1).to(tl.int64) * B
    tl.store(at, top, mask=inside)
    tl.store(at + size, total, mask=inside)
    tl.store(at + 2 * size, weighed, mask=inside)
    tl.store(at + 3 * size, beaten, mask=inside)
    tl.store(at + 4 * size, seen, mask=inside)
    tl.store(at + 5 * size, poison, mask=inside)
    tl.store(at + 6 * size, raw, mask=inside)
    if PULL:
        tl.store(pulls + (s.to(tl.int64) * B + b)[:, None] * D + d[None, :], pull, mask=tile)


@triton.jit
def _sweep_back(
    found, query, keys, times, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, kept, rates, k, j,
    first, last, jump, by, stop, K,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STEP: tl.constexpr, PER_ROW_Q: tl.constexpr, WHOLE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """`_sweep` turned around: rows from ``first`` to ``last`` onto the gradient of a tile of keys."""
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
        top = tl.load(kept + b, mask=inside, other=0.0)
        rate = tl.load(rates + b, mask=inside, other=0.0)
        c = inverse(temperatures, temperature, b, inside, STEP) * LOG2E
        if PART == BLOCK_D:
            t = tl.dot(k, tl.trans(q), input_precision="ieee")
        else:
            t = _in_parts(keys, j, j < K, query, b, inside, k, D, BLOCK_K, BLOCK_B, PART)
        if log_q is not None:
            shift = log_q + (b[None, :] * K + j[:, None] if PER_ROW_Q else j[:, None])
            shift = tl.load(shift, mask=inside[None, :] & (j < K)[:, None], other=0.0).to(tl.float32)
            t -= shift * LOG2E / c[None, :]
        share = tl.exp2(c[None, :] * (t - top[None, :])) * rate[None, :]
        if times is not None:
            often = tl.load(times + b[None, :] * K + j[:, None], mask=inside[None, :] & (j < K)[:, None], other=0)
            share = tl.where(often > 0, share * often.to(tl.float32), 0.0)
        elif not WHOLE:
            limits = tl.zeros((BLOCK_B,), tl.int32) + K
            if counts is not None:
                limits = tl.load(counts + b, mask=inside, other=0).to(tl.int32)
            names = 0
            if row_ids is not None:
                names = tl.load(row_ids + b, mask=inside, other=0).to(tl.int64)[None, :]
            within = inside[None, :] & (j < K)[:, None]
            ok = _allowed(mask, limits[None, :], names, key_ids, b[None, :], j[:, None], within, K, OWN)
            share = tl.where(ok, share, 0.0)
        found = _weigh(_rounded(share, q), q, found)
    return found


@triton.jit(do_not_specialize=["B", "K", "span"])
def multiply_back(
    query, keys, times, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, kept, rates, onto, B, K, span,
    D: tl.constexpr, BLOCK_B: tl.constexpr, BLOCK_K: tl.constexpr, BLOCK_D: tl.constexpr, PART: tl.constexpr,
    STEP: tl.constexpr, PER_ROW_Q: tl.constexpr, DENSE: tl.constexpr, OWN: tl.constexpr,
):  # fmt: skip
    """``onto`` (S, K, D): the gradient of a tile of keys by rows ``[s span, (s + 1) span)``."""
    s = tl.program_id(1)
    start = tl.program_id(0) * BLOCK_K
    j = start + tl.arange(0, BLOCK_K)
    d = tl.arange(0, BLOCK_D)
    tile = (j < K)[:, None] & (d < D)[None, :]
    k = tl.load(keys + j.to(tl.int64)[:, None] * D + d[None, :], mask=tile, other=0.0)
    if k.dtype != query.dtype.element_ty:
        k = k.to(tl.float32)
    first = s * span
    low, high, edge, last = _parts(first, tl.minimum(first + span, B), start, BLOCK_K, BLOCK_B, DENSE, OWN)
    found = tl.zeros((BLOCK_K, BLOCK_D), tl.float32)
    if DENSE:
        found = _sweep_back(
            found, query, keys, times, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, kept, rates,
            k, j, first, edge - (high - low), low, high - low, edge, K,
            D, BLOCK_B, BLOCK_K, BLOCK_D, PART, STEP, PER_ROW_Q, True, OWN,
        )  # fmt: skip
    found = _sweep_back(
        found, query, keys, times, mask, counts, row_ids, key_ids, log_q, temperatures, temperature, kept, rates,
        k, j, low, high + (last - edge), high, edge - high, last, K,
        D, BLOCK_B, BLOCK_K, BLOCK_D, PART, STEP, PER_ROW_Q, False, OWN,
    )  # fmt: skip
    at = onto + (s.to(tl.int64) * K + j)[:, None] * D + d[None, :]
    tl.store(at, found.to(onto.dtype.element_ty), mask=tile)

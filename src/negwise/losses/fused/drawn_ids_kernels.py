"""Ids that are drawn where they are read: the same ids as the samplers', without a (B, K) tensor.

This is `negwise.samplers.distribution.CatalogueSampling.draw` for some slots ``j`` of one row b: the slot's half of a
Philox block, the distribution, redraws of excluded ids, and at last the bisection, which cannot fail. Each tile of
slots reads the row's numbers again. They come from the nearest cache, while lookups are short of
registers.

``draw`` is a `negwise.losses.fused.drawn_ids.DrawArguments`. ``k0, k1, step`` are the two words of the seed and the
step, as signed 32-bit integers. If ``draw.when`` is given, the step is read from there.
Shapes: B rows, K slots.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

import triton
import triton.language as tl

LOW = tl.constexpr(0xFFFFFFFF)


@triton.jit
def _words(draw, k0, k1, step, b, blocks, redraw):
    """`negwise.draws.block`: four words of 32 bits for each block of row b."""
    number = tl.load(draw.numbers + b)
    if draw.when is None:
        c2 = step.to(tl.uint32, bitcast=True)
    else:
        c2 = tl.load(draw.when).to(tl.uint32)
    c3 = (number >> 32) | (redraw << 16) | draw.stream
    return tl.philox_impl(
        blocks.to(tl.uint32), number.to(tl.uint32), c2, c3.to(tl.uint32),
        k0.to(tl.uint32, bitcast=True), k1.to(tl.uint32, bitcast=True),
    )  # fmt: skip


@triton.jit
def _scale(hi, lo, n):
    """``floor(x n / 2^64)`` of the 64-bit ``x = (hi, lo)``: from 0 to n - 1."""
    x = (hi.to(tl.uint64) << 32) | lo.to(tl.uint64)
    return tl.umulhi(x, tl.zeros_like(x) + n).to(tl.int64)


@triton.jit
def _draw_id(draw, hi, lo):
    """The id for each random word: by the alias table if there is one, else uniform."""
    if draw.columns is None:
        ids = _scale(hi, lo, draw.items)
    else:
        column_id = hi.to(tl.int64) >> draw.shift
        column = tl.load(draw.columns + column_id)
        ids = tl.where(lo.to(tl.int64) < ((column >> 32) & LOW), column_id, column & LOW)
    return ids


@triton.jit
def _is_excluded(draw, owner, ids, needed):
    """Whether the owner knows each id, where ``needed``: by the bitmap, or by bisection of the sorted keys."""
    if draw.keys is None:
        found = ids < 0
    elif draw.bits is not None:
        word = tl.load(draw.bits + owner * ((draw.items + 63) >> 6) + (ids >> 6), mask=needed, other=0)
        found = ((word >> (ids & 63)) & 1) != 0
    else:
        begin = tl.load(draw.offsets + owner)
        end = tl.load(draw.offsets + owner + 1)
        length = end - begin
        wanted = owner * draw.items + ids
        at = begin + ids * 0
        while length > 1:
            half = length >> 1
            at += tl.where(tl.load(draw.keys + at + half, mask=needed, other=0) <= wanted, half, 0)
            length -= half
        found = tl.load(draw.keys + at, mask=needed & (at < end), other=-1) == wanted
    return found & needed


@triton.jit
def _before(draw, ids):
    """The mass of all ids below each of ``ids``."""
    if draw.starts is None:
        mass = ids
    else:
        mass = tl.load(draw.starts + ids)
    return mass


@triton.jit
def _bisect(draw, b, unit):
    """The id that holds unit number ``unit`` of the row's allowed mass.

    Find the two known ids around it, then the id between them: the largest one with at most ``unit`` of allowed mass
    before it.
    """
    positive = tl.load(draw.positives + b)
    positive_mass = _before(draw, positive + 1) - _before(draw, positive)
    low = unit * 0
    high = low + (draw.items - 1)
    excluded_before = low
    if draw.keys is not None:
        owner = tl.load(draw.owners + b)
        positive_mass = tl.where(_is_excluded(draw, owner, positive, positive >= 0), 0, positive_mass)
        begin = tl.load(draw.offsets + owner)
        end = tl.load(draw.offsets + owner + 1)
        base = owner * draw.items
        spent = tl.load(draw.spent + begin)
        at = low + begin
        until = low + end
        length = end - begin
        while length > 0:
            middle = (at + until) >> 1
            inside = at < until
            item = tl.load(draw.keys + middle, mask=inside, other=0) - base
            item = tl.where(inside, item, 0)
            excluded_before = tl.load(draw.spent + middle, mask=inside, other=0) - spent
            passed = _before(draw, item) - excluded_before - tl.where(positive < item, positive_mass, 0) <= unit
            at = tl.where(inside & passed, middle + 1, at)
            until = tl.where(inside & (passed == 0), middle, until)
            length = length >> 1
        low = tl.where(at > begin, tl.load(draw.keys + at - 1, mask=at > begin, other=0) - base, 0)
        high = tl.where(at < end, tl.load(draw.keys + at, mask=at < end, other=0) - base - 1, high)
        excluded_before = tl.load(draw.spent + at) - spent
    while tl.max(high - low, 0) > 0:
        middle = (low + high + 1) >> 1
        passed = _before(draw, middle) - excluded_before - tl.where(positive < middle, positive_mass, 0) <= unit
        low = tl.where(passed, middle, low)
        high = tl.where(passed, high, middle - 1)
    return low


@triton.jit
def draw_slots(draw, k0, k1, step, b, j, ok):
    """The ids of slots ``j`` of row b, int64; without meaning where not ``ok``."""
    positive = tl.load(draw.positives + b)
    owner = tl.load(draw.owners + b)
    w0, w1, w2, w3 = _words(draw, k0, k1, step, b, j >> 1, 0)
    odd = (j & 1) != 0
    ids = _draw_id(draw, tl.where(odd, w2, w0), tl.where(odd, w3, w1))
    excluded = ok & ((ids == positive) | _is_excluded(draw, owner, ids, ok))
    redraw = 1
    while (redraw <= draw.max_redraws) & (tl.max(excluded.to(tl.int32), 0) > 0):
        w0, w1, w2, w3 = _words(draw, k0, k1, step, b, j, redraw)
        first = _draw_id(draw, w0, w1)
        second = _draw_id(draw, w2, w3)
        first_excluded = excluded & ((first == positive) | _is_excluded(draw, owner, first, excluded))
        ids = tl.where(excluded, tl.where(first_excluded, second, first), ids)
        excluded = first_excluded & ((second == positive) | _is_excluded(draw, owner, second, first_excluded))
        redraw += 1
    if tl.max(excluded.to(tl.int32), 0) > 0:
        w0, w1, w2, w3 = _words(draw, k0, k1, step, b, j, redraw)
        ids = tl.where(excluded, _bisect(draw, b, _scale(w0, w1, tl.load(draw.allowed + b))), ids)
    return ids


@triton.jit(do_not_specialize=["k0", "k1", "step", "K", "tiles"])
def draw_all_kernel(draw, k0, k1, step, counts, out, K, tiles, BLOCK: tl.constexpr):
    """Write all of ``out`` (B, K): the ids of each row, and 0 beyond its count."""
    b = (tl.program_id(0) // tiles).to(tl.int64)
    j = (tl.program_id(0) % tiles) * BLOCK + tl.arange(0, BLOCK)
    ok = (j < K) & (j < tl.load(counts + b))
    ids = draw_slots(draw, k0, k1, step, b, j, ok)
    tl.store(out + b * K + j, tl.where(ok, ids, 0), mask=j < K)

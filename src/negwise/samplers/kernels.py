"""The draws of `negwise.samplers.catalogue` and `negwise.samplers.subset` as numba loops, bit for bit.

A row goes through three plain loops: words, ids with a branch-free list of the excluded ones, redraws. The first two
vectorise; a branch on every draw would cost more than the draw.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from negwise.draws.compiled_philox import HALF, philox, u32, u64
from negwise.samplers.words import LAPS

LOW = u64(0xFFFFFFFF)
TILE = 8192
"""Draws that go through the loops together: enough to vectorise at any K, few enough for the cache."""

LANES = 64
"""A few redraws are rounded up to so many, because the last ones of a vectorised loop run one by one."""


@njit(inline="always")
def scale(hi, lo, n):  # type: ignore[no-untyped-def]
    """`negwise.samplers.words.scale` on scalars."""
    upper, lower = u64(n) >> HALF, u64(n) & LOW
    cross, crossed = u64(hi) * lower, u64(lo) * upper
    carry = ((u64(lo) * lower) >> HALF) + (cross & LOW) + (crossed & LOW)
    return np.int64(u64(hi) * upper + (cross >> HALF) + (crossed >> HALF) + (carry >> HALF))


@njit(inline="always")
def first_not_below(values, start, end, wanted):  # type: ignore[no-untyped-def]
    """Lower bound in the sorted ``values[start:end]``."""
    length = end - start
    while length > 1:
        half = length >> 1
        start += half * (values[start + half - 1] < wanted)
        length -= half
    return start + (length == 1 and values[start] < wanted)


@njit(inline="always")
def is_known(item, known, start, end):  # type: ignore[no-untyped-def]
    at = first_not_below(known, start, end, item)
    return at < end and known[at] == item


@njit(cache=True, nogil=True)
def fill(hi, lo, c0, c1, c2, c3, k0, k1, count):  # type: ignore[no-untyped-def]
    """Two slots from each of ``count`` counters, as `negwise.samplers.words.slots`."""
    for b in range(count):
        w0, w1, w2, w3 = philox(c0[b], c1[b], c2, c3[b], k0, k1)
        hi[2 * b], lo[2 * b], hi[2 * b + 1], lo[2 * b + 1] = w0, w1, w2, w3


@njit(cache=True, nogil=True)
def pick(items, hi, lo, count, n_items, columns, shift):  # type: ignore[no-untyped-def]
    """`Law.draw`: by the alias table where there is one, else uniform."""
    if len(columns) == 0:
        n = u64(n_items)
        for j in range(count):
            items[j] = np.int64((u64(hi[j]) * n + ((u64(lo[j]) * n) >> HALF)) >> HALF)
    else:
        for j in range(count):
            own = u64(hi[j]) >> u64(shift)
            column = columns[own]
            # All ones where the coin falls to the alias: a select in arithmetic, since a branch is a coin toss.
            other = u64(0) - u64(u64(lo[j]) >= (column >> HALF))
            items[j] = np.int64(own ^ ((own ^ (column & LOW)) & other))


@njit(inline="always")
def barred(item, positive, bits, base):  # type: ignore[no-untyped-def]
    """1 where ``item`` is the positive or has its bit set in the row of words at ``base``, else 0."""
    word = bits[base + (u64(item) >> u64(6))]
    return np.int64((word >> (u64(item) & u64(63))) & u64(1)) | np.int64(item == positive)


@njit(cache=True, nogil=True)
def sift(out, slot, misses, items, begin, count, positive, bits, base):  # type: ignore[no-untyped-def]
    """Write ``count`` items to ``out`` and append to ``slot`` which of them are barred.

    Unsigned indices spare the test for a negative one, which would double the time of this loop.
    """
    begin, misses = u64(begin), u64(misses)
    for j in range(count):
        item = items[begin + u64(j)]
        out[j] = item
        slot[misses] = u32(j)
        misses += u64(barred(item, positive, bits, base))
    return np.int64(misses)


@njit(cache=True, nogil=True)
def search(bad, at, items, begin, count, positive, known, start, end):  # type: ignore[no-untyped-def]
    """Which items are the positive or in ``known[start:end]``, by bisection.

    It goes level by level through all items, so that it vectorises.
    """
    length = end - start
    for j in range(count):
        at[j] = start
    while length > 1:
        half = length >> 1
        for j in range(count):
            at[j] += half * np.int64(known[at[j] + half] <= items[begin + j])
        length -= half
    for j in range(count):
        hit = length == 1 and known[at[j]] == items[begin + j]
        bad[j] = np.int64(hit) | np.int64(items[begin + j] == positive)


@njit(cache=True, nogil=True)
def bisect(unit, positive, n_items, starts, masses, known, start, end, spent):  # type: ignore[no-untyped-def]
    """`Catalogue.bisect` for one slot: first which two known ids it lies between, then which id it is."""
    uniform = len(masses) == 0
    own = np.int64(0)
    if not is_known(positive, known, start, end):
        own = np.int64(1) if uniform else masses[positive]
    after = first_known_after(unit, positive, own, starts, known, start, end, spent)
    low = known[after - 1] if after > start else np.int64(0)
    high = known[after] - 1 if after < end else np.int64(n_items - 1)
    gone = spent[after] - spent[start]
    while low < high:
        middle = (low + high + 1) >> 1
        before = (middle if uniform else starts[middle]) - gone - (own if positive < middle else 0)
        if before <= unit:
            low = middle
        else:
            high = middle - 1
    return low


@njit(inline="always")
def first_known_after(unit, positive, own, starts, known, start, end, spent):  # type: ignore[no-untyped-def]
    """The first place in ``known[start:end]`` whose id has more than ``unit`` of allowed mass before it."""
    uniform = len(starts) == 0
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        item = known[middle]
        before = (item if uniform else starts[item]) - (spent[middle] - spent[start])
        if before - (own if positive < item else 0) <= unit:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def stage(c1, c3, rows, redo, misses, high):  # type: ignore[no-untyped-def]
    """The counters of ``misses`` slots that draw afresh; ``high`` has their lap and stream.

    Their first word is the slot itself, so ``c0`` is the list of slots already.
    """
    for m in range(misses):
        row = u64(rows[u64(redo[m])])
        c1[m], c3[m] = u32(row), u32(row >> HALF) | high


@njit(cache=True, nogil=True)
def resift(ids, redo, slot, misses, items, positives, owners, bits, stride):  # type: ignore[no-untyped-def]
    """Of the two tries for each slot take the first that is not barred; keep the slots that have none."""
    left = u64(0)
    for m in range(misses):
        r, j = u64(redo[m]), slot[m]
        base, positive = u64(owners[r] * stride), positives[r]
        first = barred(items[2 * m], positive, bits, base)
        second = barred(items[2 * m + 1], positive, bits, base)
        ids[r, u64(j)] = items[u64(2 * m) + u64(first)]
        redo[left], slot[left] = redo[m], j
        left += u64(first & second)
    return np.int64(left)


@njit(cache=True, nogil=True)
def research(ids, redo, slot, misses, items, positives, owners, known, offsets, bad, at):  # type: ignore[no-untyped-def]
    """`resift` without a bitmap: one search for the tries of each row."""
    done, left = 0, 0
    while done < misses:
        r, until = redo[done], done
        while until < misses and redo[until] == r:
            until += 1
        start, end = offsets[owners[r]], offsets[owners[r] + 1]
        search(bad, at, items, 2 * done, 2 * (until - done), positives[r], known, start, end)
        for m in range(until - done):
            j = slot[done + m]
            ids[r, j] = items[2 * (done + m) + bad[2 * m]]
            redo[left], slot[left] = r, j
            left += bad[2 * m] & bad[2 * m + 1]
        done = until
    return left


@njit(cache=True, nogil=True)
def catalogue(  # type: ignore[no-untyped-def]
    ids, mask, rows, seed, step, stream, filled, positives, owners, allowed,
    n_items, columns, shift, masses, starts, offsets, known, spent, bits, stride,
):  # fmt: skip
    """`Catalogue.draw` and its mask: row r gets ``filled[r]`` ids, then zeros.

    ``bits`` has ``stride`` words for each owner; no words, no bitmap.
    """
    k0, k1, c2 = u32(seed & LOW), u32(seed >> HALF), u32(step)
    n_rows, width = ids.shape
    tile = max(1, TILE // max(width, 1))
    room = tile * (width + 1) + LANES
    hi, lo, items = np.empty(2 * room, u32), np.empty(2 * room, u32), np.empty(2 * room, np.int64)
    c0, c1, c3 = np.zeros(room, u32), np.zeros(room, u32), np.zeros(room, u32)
    slot, redo = c0, np.empty(room, u32)
    bad, at = np.empty(2 * width, np.int64), np.empty(2 * width, np.int64)
    for first in range(0, n_rows, tile):
        last = min(first + tile, n_rows)
        n = 0
        for r in range(first, last):
            blocks = (filled[r] + 1) // 2
            for b in range(blocks):
                c0[n + b] = b
            c1[n : n + blocks] = rows[r] & 0xFFFFFFFF
            c3[n : n + blocks] = rows[r] >> 32 | stream << 12
            n += blocks
        fill(hi, lo, c0, c1, c2, c3, k0, k1, n)
        pick(items, hi, lo, 2 * n, n_items, columns, shift)

        begin, misses = 0, 0
        for r in range(first, last):
            count, owner, before = filled[r], owners[r], misses
            if stride > 0:
                base = u64(owner * stride)
                misses = sift(ids[r], slot, misses, items, begin, count, positives[r], bits, base)
            else:
                search(bad, at, items, begin, count, positives[r], known, offsets[owner], offsets[owner + 1])
                for j in range(count):
                    ids[r, j] = items[begin + j]
                    slot[misses] = j
                    misses += bad[j]
            redo[before:misses] = r
            ids[r, count:], mask[r, :count], mask[r, count:] = 0, True, False
            begin += count + count % 2

        for lap in range(1, LAPS + 2):
            stage(c1, c3, rows, redo, misses, u32(lap << 16 | stream << 12))
            padded = (misses + LANES - 1) // LANES * LANES
            fill(hi, lo, c0, c1, c2, c3, k0, k1, padded)
            if lap > LAPS:
                break
            pick(items, hi, lo, 2 * padded, n_items, columns, shift)
            if stride > 0:
                misses = resift(ids, redo, slot, misses, items, positives, owners, bits, stride)
            else:
                misses = research(ids, redo, slot, misses, items, positives, owners, known, offsets, bad, at)
        for m in range(misses):
            r = redo[m]
            start, end = offsets[owners[r]], offsets[owners[r] + 1]
            unit = scale(hi[2 * m], lo[2 * m], allowed[r])
            ids[r, slot[m]] = bisect(unit, positives[r], n_items, starts, masses, known, start, end, spent)


@njit(cache=True, nogil=True)
def weigh(log_q, ids, log_masses, log_allowed):  # type: ignore[no-untyped-def]
    """`Catalogue.log_q`: subtracted in double precision, rounded once."""
    for r in range(len(ids)):
        out, drawn = log_q[r], ids[r]
        for j in range(len(drawn)):
            out[j] = log_masses[u64(drawn[j])] - log_allowed[r]


@njit(cache=True, nogil=True)
def shuffle(out, rows, seed, step, stream, cards, filled, size):  # type: ignore[no-untyped-def]
    """`negwise.samplers.subset.shuffle`: one deck for all rows, put back in order after each."""
    k0, k1, c2 = u32(seed & LOW), u32(seed >> HALF), u32(step)
    deck, width = np.arange(size), out.shape[1]
    swapped = np.empty(width, np.int64)
    hi, lo = np.empty(width + 1, u32), np.empty(width + 1, u32)
    c0, c1, c3 = np.empty(width + 1, u32), np.empty(width + 1, u32), np.empty(width + 1, u32)
    for j in range(width):
        c0[j] = j
    for r in range(len(out)):
        n, count = cards[r], filled[r]
        c1[:], c3[:] = rows[r] & 0xFFFFFFFF, rows[r] >> 32 | stream << 12
        fill(hi, lo, c0, c1, c2, c3, k0, k1, (count + 1) // 2)
        for j in range(count):
            if j < n:
                at = j + scale(hi[j], lo[j], n - j)
                deck[at], deck[j] = deck[j], deck[at]
                swapped[j] = at
                out[r, j] = deck[j]
            else:
                out[r, j] = deck[scale(hi[j], lo[j], n)]
        for j in range(min(count, n) - 1, -1, -1):
            at = swapped[j]
            deck[at], deck[j] = deck[j], deck[at]
        out[r, count:] = 0

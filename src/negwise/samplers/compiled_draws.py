"""The draws of `negwise.samplers.distribution` and `negwise.samplers.without_replacement` as numba loops, bit for bit.

Each row goes through three loops: random words, ids with a branch-free list of the excluded ones, redraws. The first
two vectorise. A branch on every draw would cost more than the draw.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from negwise.draws.compiled_philox import HALF, philox_scalar, u32, u64
from negwise.samplers.draw_request import MAX_REDRAWS

LOW = u64(0xFFFFFFFF)
TILE = 8192
"""Draws per pass through the loops: enough to vectorise at any K, few enough for the cache."""

LANES = 64
"""The number of redraws is rounded up to a multiple of this. The last steps of a vectorised loop run one by one."""


@njit(inline="always")
def scale_scalar(hi, lo, n):  # type: ignore[no-untyped-def]
    """`negwise.samplers.draw_request.scale_words` on scalars."""
    upper, lower = u64(n) >> HALF, u64(n) & LOW
    cross, crossed = u64(hi) * lower, u64(lo) * upper
    carry = ((u64(lo) * lower) >> HALF) + (cross & LOW) + (crossed & LOW)
    return np.int64(u64(hi) * upper + (cross >> HALF) + (crossed >> HALF) + (carry >> HALF))


@njit(inline="always")
def lower_bound(values, start, end, wanted):  # type: ignore[no-untyped-def]
    """Lower bound in the sorted ``values[start:end]``."""
    length = end - start
    while length > 1:
        half = length >> 1
        start += half * (values[start + half - 1] < wanted)
        length -= half
    return start + (length == 1 and values[start] < wanted)


@njit(inline="always")
def is_excluded(item, excluded, start, end):  # type: ignore[no-untyped-def]
    at = lower_bound(excluded, start, end, item)
    return at < end and excluded[at] == item


@njit(cache=True, nogil=True)
def fill_words(hi, lo, c0, c1, c2, c3, k0, k1, count):  # type: ignore[no-untyped-def]
    """`negwise.samplers.draw_request.slot_words`: two slots from each of ``count`` counters."""
    for b in range(count):
        w0, w1, w2, w3 = philox_scalar(c0[b], c1[b], c2, c3[b], k0, k1)
        hi[2 * b], lo[2 * b], hi[2 * b + 1], lo[2 * b + 1] = w0, w1, w2, w3


@njit(cache=True, nogil=True)
def fill_ids(items, hi, lo, count, n_items, columns, shift):  # type: ignore[no-untyped-def]
    """`Distribution.draw`: by the alias table if there is one, else uniform."""
    if len(columns) == 0:
        n = u64(n_items)
        for j in range(count):
            items[j] = np.int64((u64(hi[j]) * n + ((u64(lo[j]) * n) >> HALF)) >> HALF)
    else:
        for j in range(count):
            column_id = u64(hi[j]) >> u64(shift)
            column = columns[column_id]
            # All bits set if the alias is drawn. A select in arithmetic: a branch would be mispredicted half the time.
            other = u64(0) - u64(u64(lo[j]) >= (column >> HALF))
            items[j] = np.int64(column_id ^ ((column_id ^ (column & LOW)) & other))


@njit(inline="always")
def excluded_bit(item, positive, bits, base):  # type: ignore[no-untyped-def]
    """1 if ``item`` is the positive or its bit is set in the bitmap row that starts at ``base``, else 0."""
    word = bits[base + (u64(item) >> u64(6))]
    return np.int64((word >> (u64(item) & u64(63))) & u64(1)) | np.int64(item == positive)


@njit(cache=True, nogil=True)
def store_and_list_excluded(out, slot, n_redraws, items, begin, count, positive, bits, base):  # type: ignore[no-untyped-def]
    """Write ``count`` items to ``out`` and append the slots of the excluded ones to ``slot``.

    Unsigned indices avoid the test for negative ones, which would double the time of this loop.
    """
    begin, n_redraws = u64(begin), u64(n_redraws)
    for j in range(count):
        item = items[begin + u64(j)]
        out[j] = item
        slot[n_redraws] = u32(j)
        n_redraws += u64(excluded_bit(item, positive, bits, base))
    return np.int64(n_redraws)


@njit(cache=True, nogil=True)
def search_excluded(bad, at, items, begin, count, positive, excluded, start, end):  # type: ignore[no-untyped-def]
    """Set ``bad`` for each item that is the positive or in ``excluded[start:end]``, by bisection.

    Each level of the bisection runs over all items, so that it vectorises.
    """
    length = end - start
    for j in range(count):
        at[j] = start
    while length > 1:
        half = length >> 1
        for j in range(count):
            at[j] += half * np.int64(excluded[at[j] + half] <= items[begin + j])
        length -= half
    for j in range(count):
        hit = length == 1 and excluded[at[j]] == items[begin + j]
        bad[j] = np.int64(hit) | np.int64(items[begin + j] == positive)


@njit(cache=True, nogil=True)
def bisect_slot(unit, positive, n_items, starts, masses, excluded, start, end, excluded_mass):  # type: ignore[no-untyped-def]
    """`CatalogueSampling.bisect` for one slot: find the two excluded ids around it, then the id between them."""
    uniform = len(masses) == 0
    positive_mass = np.int64(0)
    if not is_excluded(positive, excluded, start, end):
        positive_mass = np.int64(1) if uniform else masses[positive]
    after = first_excluded_after(unit, positive, positive_mass, starts, excluded, start, end, excluded_mass)
    low = excluded[after - 1] if after > start else np.int64(0)
    high = excluded[after] - 1 if after < end else np.int64(n_items - 1)
    excluded_before = excluded_mass[after] - excluded_mass[start]
    while low < high:
        middle = (low + high + 1) >> 1
        before = (middle if uniform else starts[middle]) - excluded_before - (positive_mass if positive < middle else 0)
        if before <= unit:
            low = middle
        else:
            high = middle - 1
    return low


@njit(inline="always")
def first_excluded_after(unit, positive, positive_mass, starts, excluded, start, end, excluded_mass):  # type: ignore[no-untyped-def]
    """The first position in ``excluded[start:end]`` whose id has more than ``unit`` of allowed mass before it."""
    uniform = len(starts) == 0
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        item = excluded[middle]
        before = (item if uniform else starts[item]) - (excluded_mass[middle] - excluded_mass[start])
        if before - (positive_mass if positive < item else 0) <= unit:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def set_redraw_counters(c1, c3, rows, redraw_rows, n_redraws, high):  # type: ignore[no-untyped-def]
    """Set the Philox counters of ``n_redraws`` slots. ``high`` holds the number of the redraw and the stream.

    The first counter word is the slot, so ``c0`` is the list of slots already.
    """
    for m in range(n_redraws):
        row = u64(rows[u64(redraw_rows[m])])
        c1[m], c3[m] = u32(row), u32(row >> HALF) | high


@njit(cache=True, nogil=True)
def take_redraws(ids, redraw_rows, slot, n_redraws, items, positives, owners, bits, stride):  # type: ignore[no-untyped-def]
    """Take the first of the two tries of each slot that is not excluded. Return how many slots must draw again."""
    left = u64(0)
    for m in range(n_redraws):
        r, j = u64(redraw_rows[m]), slot[m]
        base, positive = u64(owners[r] * stride), positives[r]
        first = excluded_bit(items[2 * m], positive, bits, base)
        second = excluded_bit(items[2 * m + 1], positive, bits, base)
        ids[r, u64(j)] = items[u64(2 * m) + u64(first)]
        redraw_rows[left], slot[left] = redraw_rows[m], j
        left += u64(first & second)
    return np.int64(left)


@njit(cache=True, nogil=True)
def take_redraws_by_search(ids, redraw_rows, slot, n_redraws, items, positives, owners, excluded, offsets, bad, at):  # type: ignore[no-untyped-def]
    """`take_redraws` without a bitmap: one search per row."""
    done, left = 0, 0
    while done < n_redraws:
        r, until = redraw_rows[done], done
        while until < n_redraws and redraw_rows[until] == r:
            until += 1
        start, end = offsets[owners[r]], offsets[owners[r] + 1]
        search_excluded(bad, at, items, 2 * done, 2 * (until - done), positives[r], excluded, start, end)
        for m in range(until - done):
            j = slot[done + m]
            ids[r, j] = items[2 * (done + m) + bad[2 * m]]
            redraw_rows[left], slot[left] = r, j
            left += bad[2 * m] & bad[2 * m + 1]
        done = until
    return left


@njit(cache=True, nogil=True)
def draw_catalogue(  # type: ignore[no-untyped-def]
    ids, mask, rows, seed, step, stream, filled, positives, owners, allowed,
    n_items, columns, shift, masses, starts, offsets, excluded, excluded_mass, bits, stride,
):  # fmt: skip
    """`CatalogueSampling.draw` and its mask: row r gets ``filled[r]`` ids, then zeros.

    ``bits`` has ``stride`` words per owner; ``stride`` is 0 without a bitmap.
    """
    k0, k1, c2 = u32(seed & LOW), u32(seed >> HALF), u32(step)
    n_rows, width = ids.shape
    tile = max(1, TILE // max(width, 1))
    room = tile * (width + 1) + LANES
    hi, lo, items = np.empty(2 * room, u32), np.empty(2 * room, u32), np.empty(2 * room, np.int64)
    c0, c1, c3 = np.zeros(room, u32), np.zeros(room, u32), np.zeros(room, u32)
    slot, redraw_rows = c0, np.empty(room, u32)
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
        fill_words(hi, lo, c0, c1, c2, c3, k0, k1, n)
        fill_ids(items, hi, lo, 2 * n, n_items, columns, shift)

        begin, n_redraws = 0, 0
        for r in range(first, last):
            count, owner, before = filled[r], owners[r], n_redraws
            if stride > 0:
                base = u64(owner * stride)
                n_redraws = store_and_list_excluded(
                    ids[r], slot, n_redraws, items, begin, count, positives[r], bits, base
                )
            else:
                search_excluded(
                    bad, at, items, begin, count, positives[r], excluded, offsets[owner], offsets[owner + 1]
                )
                for j in range(count):
                    ids[r, j] = items[begin + j]
                    slot[n_redraws] = j
                    n_redraws += bad[j]
            redraw_rows[before:n_redraws] = r
            ids[r, count:], mask[r, :count], mask[r, count:] = 0, True, False
            begin += count + count % 2

        for redraw in range(1, MAX_REDRAWS + 2):
            set_redraw_counters(c1, c3, rows, redraw_rows, n_redraws, u32(redraw << 16 | stream << 12))
            padded = (n_redraws + LANES - 1) // LANES * LANES
            fill_words(hi, lo, c0, c1, c2, c3, k0, k1, padded)
            if redraw > MAX_REDRAWS:
                break
            fill_ids(items, hi, lo, 2 * padded, n_items, columns, shift)
            if stride > 0:
                n_redraws = take_redraws(ids, redraw_rows, slot, n_redraws, items, positives, owners, bits, stride)
            else:
                n_redraws = take_redraws_by_search(
                    ids, redraw_rows, slot, n_redraws, items, positives, owners, excluded, offsets, bad, at
                )
        for m in range(n_redraws):
            r = redraw_rows[m]
            start, end = offsets[owners[r]], offsets[owners[r] + 1]
            unit = scale_scalar(hi[2 * m], lo[2 * m], allowed[r])
            ids[r, slot[m]] = bisect_slot(
                unit, positives[r], n_items, starts, masses, excluded, start, end, excluded_mass
            )


@njit(cache=True, nogil=True)
def catalogue_log_q(log_q, ids, log_masses, log_allowed):  # type: ignore[no-untyped-def]
    """`CatalogueSampling.log_q`: computed in float64, rounded once."""
    for r in range(len(ids)):
        out, drawn = log_q[r], ids[r]
        for j in range(len(drawn)):
            out[j] = log_masses[u64(drawn[j])] - log_allowed[r]


@njit(cache=True, nogil=True)
def shuffle_rows(out, rows, seed, step, stream, sizes, filled, size):  # type: ignore[no-untyped-def]
    """`negwise.samplers.without_replacement.shuffle_ranks`. All rows share one array, restored after each row."""
    k0, k1, c2 = u32(seed & LOW), u32(seed >> HALF), u32(step)
    order, width = np.arange(size), out.shape[1]
    swapped = np.empty(width, np.int64)
    hi, lo = np.empty(width + 1, u32), np.empty(width + 1, u32)
    c0, c1, c3 = np.empty(width + 1, u32), np.empty(width + 1, u32), np.empty(width + 1, u32)
    for j in range(width):
        c0[j] = j
    for r in range(len(out)):
        n, count = sizes[r], filled[r]
        c1[:], c3[:] = rows[r] & 0xFFFFFFFF, rows[r] >> 32 | stream << 12
        fill_words(hi, lo, c0, c1, c2, c3, k0, k1, (count + 1) // 2)
        for j in range(count):
            if j < n:
                at = j + scale_scalar(hi[j], lo[j], n - j)
                order[at], order[j] = order[j], order[at]
                swapped[j] = at
                out[r, j] = order[j]
            else:
                out[r, j] = order[scale_scalar(hi[j], lo[j], n)]
        for j in range(min(count, n) - 1, -1, -1):
            at = swapped[j]
            order[at], order[j] = order[j], order[at]
        out[r, count:] = 0

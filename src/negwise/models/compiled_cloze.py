"""The masked positions of `negwise.models.cloze` as a numba loop, equal bit for bit."""

from __future__ import annotations

import numpy as np
from numba import njit

from negwise.draws.compiled_philox import HALF, philox_scalar, u32, u64

LOW = u64(0xFFFFFFFF)


@njit(cache=True, nogil=True)
def choose_masked(chosen, mask, numbers, rate, last_below, step, stream, seed, last_item_block):  # type: ignore[no-untyped-def]
    """Set ``chosen`` (B, H), initially all false, at the masked positions of row ``numbers[b]``."""
    rows, width = mask.shape
    k0, k1 = u32(u64(seed) & LOW), u32(u64(seed) >> HALF)
    positions = np.empty(width, np.int64)
    ranked = np.empty(width + 3, np.uint64)  # random word << 32 | index of the item: all distinct
    for b in range(rows):
        length = 0
        for place in range(width):
            if mask[b, place]:
                positions[length] = place
                length += 1
        if length == 0:
            continue
        c1 = u32(u64(numbers[b]) & LOW)
        c3 = u32((u64(numbers[b]) >> HALF) | u64(stream))
        if np.int64(philox_scalar(u32(last_item_block), c1, u32(step), c3, k0, k1)[0]) < last_below:
            chosen[b, positions[length - 1]] = True
            continue
        for part in range((length + 3) // 4):
            first = 4 * part
            w0, w1, w2, w3 = philox_scalar(u32(part), c1, u32(step), c3, k0, k1)
            ranked[first] = u64(w0) << HALF | u64(first)
            ranked[first + 1] = u64(w1) << HALF | u64(first + 1)
            ranked[first + 2] = u64(w2) << HALF | u64(first + 2)
            ranked[first + 3] = u64(w3) << HALF | u64(first + 3)
        wanted = max(1, int(np.floor(rate * length + 0.5)))
        last = np.partition(ranked[:length], wanted - 1)[wanted - 1]
        for item in range(length):
            chosen[b, positions[item]] = ranked[item] <= last

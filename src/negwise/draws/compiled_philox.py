"""`negwise.draws.philox` compiled by numba, for the compiled loops that draw."""

from __future__ import annotations

import numpy as np
from numba import njit

from negwise.draws.random_words import MULTIPLIERS, ROUNDS, WEYL

u32, u64 = np.uint32, np.uint64
M0, M1 = u64(MULTIPLIERS[0]), u64(MULTIPLIERS[1])
W0, W1 = u32(WEYL[0]), u32(WEYL[1])
HALF = u64(32)


@njit(inline="always")
def philox_scalar(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Four random words of 32 bits for one counter under one key; all arguments are 32-bit scalars."""
    for _ in range(ROUNDS):
        p0, p1 = u64(c0) * M0, u64(c2) * M1
        c0, c1, c2, c3 = u32(p1 >> HALF) ^ c1 ^ k0, u32(p1), u32(p0 >> HALF) ^ c3 ^ k1, u32(p0)
        k0, k1 = u32(k0 + W0), u32(k1 + W1)
    return c0, c1, c2, c3

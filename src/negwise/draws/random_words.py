"""Counter-based randomness: a draw is a function of (seed, step, row) and of nothing else.

There is no generator object and no hidden state. A batch may be split, drawn by any worker or rank, or drawn
again after a resume: each row still gets its own draw. The function is Philox4x32-10 (Salmon et al., "Parallel
random numbers: as easy as 1, 2, 3", SC 2011). It passes BigCrush, has published known answers and is
``tl.philox`` in ``triton.language``. It needs only 32-bit multiplies, so NumPy, plain torch on any device and a
numba loop compute the same bits.

Layout of the 128-bit counter; the seed is the 64-bit Philox key:

====  ===================================================  ============
word  holds                                                limit
====  ===================================================  ============
c0    block: four words of 32 bits each                    2^34 words
c1    row, low 32 bits
c2    step                                                 step < 2^32
c3    lap (16 bits), stream (4 bits), row's high 12 bits   row < 2^44
====  ===================================================  ============

A stream is for one purpose: the number of negatives, their ids, the part of a mixture. A lap is one attempt
within a stream: a rejected draw is repeated on the next lap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", NDArray[np.int64], "torch.Tensor")
"""int64, of NumPy or torch. Both wrap on overflow and shift arithmetically, so the same code serves both."""

LOW = 0xFFFFFFFF
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10

MAX_ROW = 2**44
MAX_LAP = 2**16


class Stream(IntEnum):
    """The purpose of a random word. Two streams of one key are independent."""

    COUNT = 0
    ITEM = 1
    PART = 2
    POOL = 3
    REPEAT = 4


@dataclass(frozen=True)
class Key:
    """Identifies a draw: ``seed`` of the run, ``step`` of training, ``row`` of the global batch.

    ``row`` is the number of the first row; the batch then has rows ``row, row + 1, ...``. Or it is a 1-D array
    or tensor with the number of each row. A rank that holds rows 512..1023 of the global batch passes
    ``row=512``. A loop that shuffles may pass the numbers of its examples.
    """

    seed: int
    step: int
    row: int | NDArray[np.int64] | torch.Tensor = 0

    def __post_init__(self) -> None:
        for name, value, bits in (("seed", self.seed, 64), ("step", self.step, 32)):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**bits:
                raise InputError(f"Key: {name}={value!r}, expected an integer from 0 to 2**{bits} - 1")
        if isinstance(self.row, int | np.integer):
            if not 0 <= self.row < MAX_ROW:
                raise InputError(f"Key: row={self.row}, expected 0 <= row < 2**44")
        elif getattr(self.row, "ndim", None) != 1 or not _has_integer_dtype(self.row):
            came = describe(self.row)
            raise InputError(f"Key: row is {came}, expected an integer, or a 1-D array or tensor of integers")
        elif len(self.row) and _on_cpu(self.row):
            low, high = int(self.row.min()), int(self.row.max())
            if low < 0 or high >= MAX_ROW:
                raise InputError(f"Key: row numbers {low}..{high}, expected 0 <= row < 2**44")

    def rows(self, n: int) -> Any:
        """The numbers of the batch's ``n`` rows, int64 (n,): a tensor if ``row`` is one, else a NumPy array."""
        if isinstance(self.row, int | np.integer):
            return np.arange(self.row, self.row + n, dtype=np.int64)
        if len(self.row) != n:
            raise InputError(f"Key: row holds {len(self.row)} row numbers, but the batch has {n} rows; pass one a row")
        return self.row.astype(np.int64) if isinstance(self.row, np.ndarray) else self.row.long()

    def on(self, device: torch.device | str, n: int) -> Key:
        """The same key with the numbers of its ``n`` rows as a tensor on ``device``."""
        import torch

        return replace(self, row=torch.as_tensor(self.rows(n)).to(device))


def block(key: Key, rows: Array, blocks: Array, stream: Stream, lap: int = 0) -> tuple[Array, Array, Array, Array]:
    """Four random words of 32 bits for each row number and block number; ``rows`` and ``blocks`` broadcast."""
    if not 0 <= lap < MAX_LAP:
        raise InputError(f"lap={lap}, expected 0 <= lap < 2**16")
    c3 = (rows >> 32) | (lap << 16 | int(stream) << 12)
    seed = int(key.seed)
    return philox(blocks & LOW, rows & LOW, blocks * 0 + int(key.step), c3, seed & LOW, seed >> 32)


def philox(c0: Array, c1: Array, c2: Array, c3: Array, k0: int, k1: int) -> tuple[Array, Array, Array, Array]:
    """Philox4x32-10 of the counter ``(c0, c1, c2, c3)`` under the key ``(k0, k1)``: 32-bit values in int64.

    A product of two 32-bit values may pass 2^63 and wrap. Its 64 bits are still right, and the mask after the
    arithmetic shift keeps the upper half of them.
    """
    for _ in range(ROUNDS):
        p0, p1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]
        c0, c1, c2, c3 = ((p1 >> 32) & LOW) ^ c1 ^ k0, p1 & LOW, ((p0 >> 32) & LOW) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + WEYL[0]) & LOW, (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def _has_integer_dtype(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return bool(np.issubdtype(values.dtype, np.integer))
    dtype = getattr(values, "dtype", None)
    return str(dtype) in {f"torch.{kind}" for kind in ("uint8", "int8", "int16", "int32", "int64")}


def _on_cpu(values: Any) -> bool:
    """Whether the values can be read without waiting for a GPU."""
    return isinstance(values, np.ndarray) or values.device.type == "cpu"


def describe(value: Any) -> str:
    """A value for a message: a number as it is, an array by dtype and shape."""
    shape = getattr(value, "shape", None)
    return repr(value) if shape is None else f"{value.dtype} of shape {tuple(shape)}"

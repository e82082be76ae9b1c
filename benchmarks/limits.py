"""What InfoNCE cannot do without, counted: bytes through memory and operations, for each place negatives come from.

``python -m benchmarks.limits`` prints the table of docs/gpu.md. B rows, K negatives each, M rows of a table, D width.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

ID = 8
"""Bytes of an id."""
RECORD = Path(__file__).parent / "results" / "gpu.json"


@dataclass(frozen=True)
class Work:
    """Bytes that must move, and operations on matrices (a multiplication and an addition are two)."""

    nbytes: float
    operations: float

    def ms(self, top: dict[str, float]) -> float:
        """The time below which it cannot be done at the rates of ``gpu.ceilings``."""
        return max(self.nbytes / top["bytes_per_ms"], self.operations / top["operations_per_ms"])


def table_forward(b: int, k: int, d: int, size: int) -> Work:
    """Each key once for each id, as if no two ids were the same: B K (D size + 8), and the rows' own vectors.

    Its 2 B K D operations are not on matrices: each row has its own keys, so nothing can be multiplied twice.
    """
    return Work(b * k * (d * size + ID) + 3 * b * d * size, 0.0)


def table_both(m: int, b: int, k: int, d: int, size: int) -> Work:
    """Forward; then each key that was drawn once more, its gradient written, and that of every other row as zeros.

    The queries are read again for each id, B K D size bytes, but those are few and stay in the cache.
    """
    drawn = m * -math.expm1(b * k * math.log1p(-1 / m))  # distinct ids of so many uniform draws, on average
    nbytes = table_forward(b, k, d, size).nbytes + (drawn + m) * d * size + 2 * b * k * ID + 2 * b * d * size
    return Work(nbytes, 0.0)


def queue(b: int, k: int, d: int, size: int) -> Work:
    """Frozen shared negatives: read once; scores, and the query's gradient from them: 4 B K D."""
    return Work((k + 4 * b) * d * size, 4.0 * b * k * d)


def batch(b: int, d: int, size: int) -> Work:
    """The batch itself: scores and the queries' gradient, then both again for the keys: 8 B^2 D.

    Keeping the scores would save 2 B^2 D and cost B^2 numbers of memory, read and written.
    """
    return Work(8.0 * b * d * size, 8.0 * b * b * d)


def rows(top: dict[str, float]) -> list[str]:
    """The limits of the bars' shapes in bfloat16, as lines of Markdown."""
    named = {
        "ids into 100k x 128, B = 4,096, K = 1,024: forward": table_forward(4096, 1024, 128, 2),
        "... forward and backward": table_both(100_000, 4096, 1024, 128, 2),
        "ids into 5M x 128, B = 4,096, K = 1,024: forward and backward": table_both(5_000_000, 4096, 1024, 128, 2),
        "frozen queue, B = 256, K = 131,072, D = 128": queue(256, 131_072, 128, 2),
        "in-batch, B = 32,768, D = 256, both sides": batch(32_768, 256, 2),
        "in-batch, B = 262,144, D = 256, both sides": batch(262_144, 256, 2),
    }
    lines = ["| work | bytes | operations | no faster than |", "|---|---|---|---|"]
    for name, work in named.items():
        done = f"{work.operations / 1e12:,.3g} T" if work.operations else "few"
        lines.append(f"| {name} | {work.nbytes / 1e9:,.3g} GB | {done} | {work.ms(top):,.3g} ms |")
    return lines


if __name__ == "__main__":
    print("\n".join(rows(json.loads(RECORD.read_text())["ceilings"])))

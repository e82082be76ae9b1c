"""Numbers and tables as the pages print them, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.crossed import Contrast
from evidence.quality import Measured


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def signed(value: float) -> str:
    return f"{value:+.4f}"


def span(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.4f}..{ends[1]:+.4f}"


def small(p: float) -> str:
    return "< .0001" if p < 1e-4 else f"{p:.4f}"


def percent(share: float) -> str:
    """A whole per cent; never -0%."""
    return f"{round(100 * share) + 0}%"


def with_interval(each: Measured | Contrast) -> str:
    """A difference with its 95% interval."""
    found = each.contrast if isinstance(each, Measured) else each
    return f"{signed(found.mean)} ({span((found.low, found.high))})"


def brief(each: Measured | Contrast, digits: int = 3) -> str:
    """The same with fewer digits and no zero before the point, for prose."""
    found = each.contrast if isinstance(each, Measured) else each
    return f"{bare(found.mean, digits)} ({bare(found.low, digits)} to {bare(found.high, digits)})"


def bare(value: float, digits: int = 3) -> str:
    """+.036"""
    return f"{value:+.{digits}f}".replace("0.", ".", 1)

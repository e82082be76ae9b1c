"""Numbers and tables as the page prints them, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.bootstrap import Measured


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def signed(value: float) -> str:
    return f"{value:+.4f}"


def span(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.4f}..{ends[1]:+.4f}"


def small(p: float) -> str:
    return f"{p:.4f}"


def with_interval(each: Measured) -> str:
    return f"{signed(each.mean)} ({span(each.interval)})"


def with_error(each: Measured) -> str:
    return f"{each.mean:.4f} ± {each.error:.4f}"

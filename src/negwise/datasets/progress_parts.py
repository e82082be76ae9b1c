"""The progress of a whole, from that of its parts."""

from __future__ import annotations

from negwise.stages import Progress


def within(progress: Progress | None, first: float, last: float) -> Progress | None:
    """A `Progress` of the part that takes the time from ``first`` to ``last``, as shares of the whole."""
    if progress is None:
        return None
    return lambda share: progress(first + (last - first) * share)

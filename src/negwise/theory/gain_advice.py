"""What the share of the gain at each K and the time of a step say together: a sentence that a person can act on.

The shares are forecasts and the times are measured. A K is enough where it has nine tenths of the gain of the largest
K. Negatives are nearly free where the largest K takes up to a tenth more time than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from negwise.records import GainShare

ENOUGH, MOST = 0.9, 0.75
"""Shares of the gain of the largest K: nearly all of it, and most of it."""
FREE = 1.1
"""A step that takes up to this many times as long costs nearly the same."""
DEAR = 1.5
"""A step that takes this many times as long is worth avoiding for the last tenths of the gain."""
UNCERTAIN = 0.05
"""Shares closer than this are the same: no measurement contradicts their order."""

_TENTHS = ("none", "a tenth", *(f"{word} tenths" for word in ("two", "three", "four")), "half")
_TENTHS += tuple(f"{word} tenths" for word in ("six", "seven", "eight", "nine"))


class Measured(NamedTuple):
    """A K that was trained: its test score and the standard error of that."""

    k: float
    value: float
    se: float | None


def advice(shares: Sequence[GainShare], metric: str | None = None) -> str:
    """Which K to take, from the shares of the gain and the seconds of a step; and what is not known.

    ``metric`` is how the metric is called, where that is not its name in the records.

    >>> advice([GainShare(1, "ndcg@10", 0.0, seconds=1.0), GainShare(100, "ndcg@10", 0.9, seconds=1.0),
    ...         GainShare(1000, "ndcg@10", 1.0, seconds=1.01)])
    'K = 100 has about nine tenths of the gain of K = 1,000 and takes 99% of its time: take K = 1,000.'
    """
    rows = sorted(shares, key=lambda row: row.k)
    if not rows or rows[-1].k <= 1:
        return "There is one negative to a positive, so there is no K to choose."
    timed = [row for row in rows if row.seconds is not None]
    known = [row for row in rows if row.share is not None]
    if len(known) < 2:
        return _by_cost_alone(timed, metric or rows[-1].metric)
    priced = [row for row in known if row.seconds is not None]
    if len(priced) < 2:
        top = known[-1]
        enough = _first(known, ENOUGH)
        return (
            f"K = {_number(enough.k)} has {_part(enough, top)} of the gain of K = {_number(top.k)}. The time of "
            "a step at each K was not measured, so take the largest K that costs you nothing."
        )
    if _times(priced[-1], priced[0]) <= FREE and _first(known, ENOUGH).k > priced[-1].k:
        return _free_as_far_as_timed(priced[-1], _first(known, ENOUGH), known[-1])
    return _by_share_and_cost(priced, known[-1])


def contradiction(shares: Sequence[GainShare], measured: Sequence[Measured]) -> str | None:
    """Where K that were trained are the other way round than forecast, beyond twice their error; else None."""
    forecast = {row.k: row.share for row in shares if row.share is not None}
    found = sorted((one for one in measured if one.k in forecast and one.se is not None), key=lambda one: one.k)
    for less, more in pairwise(found):
        assert less.se is not None and more.se is not None
        ahead, error = less.value - more.value, (less.se**2 + more.se**2) ** 0.5
        if ahead > 2 * error and (forecast[more.k] or 0.0) - (forecast[less.k] or 0.0) > UNCERTAIN:
            return (
                f"The forecast has K = {_number(more.k)} above K = {_number(less.k)}. Measured on test, "
                f"K = {_number(less.k)} is ahead by {ahead:.4f}. The measurement counts."
            )
    return None


def _by_share_and_cost(rows: Sequence[GainShare], last: GainShare) -> str:
    """``rows`` have shares and times; ``last`` is the largest K with a share, which may not have been timed."""
    top, enough = rows[-1], _first(rows, ENOUGH)
    if _times(top, rows[0]) <= FREE and enough is top and last is not top:
        return (
            f"Negatives are nearly free up to K = {_number(top.k)}, which has {_part(top, last)} of the gain of "
            f"K = {_number(last.k)}: take K = {_number(top.k)}."
        )
    if _times(top, rows[0]) <= FREE and enough is top:
        return f"Negatives are nearly free here, and the gain grows to the end: take K = {_number(top.k)}."
    if _times(top, enough) <= FREE and enough is not top:
        return (
            f"K = {_number(enough.k)} has {_part(enough, top)} of the gain of K = {_number(top.k)} and takes "
            f"{_percent(enough, top)} of its time: take K = {_number(top.k)}."
        )
    most = _first(rows, MOST)
    best = most if _times(enough, most) > DEAR else enough
    if best is top:
        return f"Each negative costs time, and the gain grows to the end: take K = {_number(top.k)}."
    return (
        f"Each negative costs time. K = {_number(best.k)} has {_part(best, top)} of the gain of "
        f"K = {_number(top.k)} and takes {_percent(best, top)} of its time: take K = {_number(best.k)}."
    )


def _free_as_far_as_timed(timed: GainShare, enough: GainShare, top: GainShare) -> str:
    found = (
        f"Negatives are nearly free up to K = {_number(timed.k)}, the largest K here whose step was timed. "
        f"K = {_number(enough.k)} has {_part(enough, top)} of the gain of K = {_number(top.k)}"
    )
    return f"{found}: take K = {_number(enough.k)} if a step with it is about as fast."


def _by_cost_alone(timed: Sequence[GainShare], metric: str) -> str:
    """Where no share is known."""
    unknown = f"How much of the gain each K brings is not known for {metric} here."
    if len(timed) < 2:
        return f"{unknown} The time of a step at each K was not measured either."
    first, last = timed[0], timed[-1]
    times = _times(last, first)
    cost = f"A step with K = {_number(last.k)} takes {times:.2f} times as long as one with K = {_number(first.k)}"
    if times <= FREE:
        return f"{unknown} {cost}, so more negatives cost nearly nothing: leave K to the metric, the default."
    tried = ",".join(f"{row.k:g}" for row in timed[:4])
    return f"{unknown} {cost}. To measure the gain, run negwise sweep --k {tried} on the same data."


def _first(rows: Sequence[GainShare], part: float) -> GainShare:
    """The smallest K with ``part`` of the gain of the largest."""
    return next(row for row in rows if (row.share or 0.0) >= part * (rows[-1].share or 0.0))


def _times(row: GainShare, other: GainShare) -> float:
    return (row.seconds or 0.0) / max(other.seconds or 0.0, 1e-12)


def _percent(row: GainShare, top: GainShare) -> str:
    return f"{100 * min(_times(row, top), 1.0):.0f}%"


def _part(row: GainShare, top: GainShare) -> str:
    """0.9 -> nine tenths."""
    part = (row.share or 0.0) / max(top.share or 0.0, 1e-12)
    tenths = min(round(10 * part), 10)
    if tenths == 10:
        return "all" if part > 0.995 else "nearly all"
    return f"about {_TENTHS[tenths]}"


def _number(k: float) -> str:
    return f"{k:,.0f}" if k >= 10 or k == int(k) else f"{k:.1f}"

"""What the share of the gain at each K and the time of a step say together: a sentence that a person can act on.

The shares are forecasts and the times are measured. A K is enough where it has nine tenths of the gain of the largest
K. Negatives are nearly free where the largest K takes up to a tenth more time than that. Where other K were trained
for the same time as the model, what was measured comes before what was forecast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from negwise.records import GainShare, QueryDifference

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


class Compared(NamedTuple):
    """Another K that was trained for the same time, and how far the model is ahead of it, paired by query."""

    k: float
    difference: QueryDifference

    @property
    def better(self) -> bool:
        """Whether the 95% interval has this K ahead of the model."""
        return self.difference.high is not None and self.difference.high < 0

    @property
    def worse(self) -> bool:
        return self.difference.low is not None and self.difference.low > 0


class _Advice(NamedTuple):
    """Which K to ``take``, None where that cannot be told, and the whole ``text``."""

    take: float | None
    text: str


def advice(
    shares: Sequence[GainShare],
    metric: str | None = None,
    *,
    k: float | None = None,
    compared: Sequence[Compared] = (),
) -> str:
    """Which K to take, from the shares of the gain and the seconds of a step; and what is not known.

    ``metric`` is how the metric is called, where that is not its name in the records. ``k`` is the model's own K, which
    is kept where nothing clearly better is known. ``compared`` are others that were trained for the same time: a
    forecast that they contradict gives way.

    >>> advice([GainShare(1, "ndcg@10", 0.0, seconds=1.0), GainShare(100, "ndcg@10", 0.9, seconds=1.0),
    ...         GainShare(1000, "ndcg@10", 1.0, seconds=1.01)])
    'K = 100 has about nine tenths of the gain of K = 1,000, and a step takes 99% of the time. Take K = 1,000.'
    """
    found = _by_forecast(sorted(shares, key=lambda row: row.k), metric, k)
    measured = None if k is None else _by_measurement(found.take, shares, k, compared)
    return measured or found.text


def contradiction(shares: Sequence[GainShare], k: float, compared: Sequence[Compared]) -> str | None:
    """Where a smaller K is clearly ahead of a larger one that the forecast has above it; else None.

    ``k`` is the model's. Shares of K between ``shares`` are read off a line in log K.
    """
    for one in compared:
        less, more = sorted((k, one.k))
        smaller_is_ahead = one.better if one.k < k else one.worse
        low, high = _share_at(shares, less), _share_at(shares, more)
        if smaller_is_ahead and low is not None and high is not None and high - low > UNCERTAIN:
            return (
                f"The forecast has K = {_number(more)} above K = {_number(less)}. Measured on this data, "
                f"K = {_number(less)} is ahead by {abs(one.difference.mean):.4f} ({_interval(one.difference)}). "
                "The measurement counts."
            )
    return None


def _by_measurement(
    take: float | None, shares: Sequence[GainShare], k: float, compared: Sequence[Compared]
) -> str | None:
    """What the K that were trained say; None where they leave the forecast as it is. ``take``: what that says."""
    better = min((one for one in compared if one.better), key=lambda one: one.difference.mean, default=None)
    own = f"the model's K = {_number(k)}"
    if better is not None:
        return (
            f"K = {_number(better.k)} was trained here for the same time and is better than {own}. "
            f"Take K = {_number(better.k)}."
        )
    same = None if take is None else next((one for one in compared if _alike(one.k, take)), None)
    if same is not None and not _alike(same.k, k):
        how = "is worse than" if same.worse else "is level with"
        return f"K = {_number(same.k)} was trained here for the same time and {how} {own}. Keep K = {_number(k)}."
    if compared and (take is None or contradiction(shares, k, compared) is not None):
        others = _listed([_number(one.k) for one in compared])
        verb = "was" if len(compared) == 1 else "were"
        return f"K = {others} {verb} trained here for the same time, and none is better than {own}. Keep it."
    return None


def _by_forecast(rows: Sequence[GainShare], metric: str | None, own: float | None) -> _Advice:
    """``rows`` in the order of their K; ``own`` is the K of the model."""
    if not rows or rows[-1].k <= 1:
        return _Advice(None, "A positive has one negative, so there is no K to choose.")
    known = [row for row in rows if row.share is not None]
    if len(known) < 2:
        return _by_cost_alone([row for row in rows if row.seconds is not None], metric or rows[-1].metric, own)
    priced = [row for row in known if row.seconds is not None]
    enough = _first(known, ENOUGH)
    if len(priced) < 2:
        return _Advice(
            None,
            f"K = {_number(enough.k)} has {_part(enough, known[-1])} of the gain of K = {_number(known[-1].k)}. The "
            "time of a step at each K was not measured. Take the largest K that does not slow your steps down.",
        )
    mine = None if own is None else next((row for row in known if _alike(row.k, own)), None)
    if _times(priced[-1], priced[0]) <= FREE and enough.k > priced[-1].k:
        return _free_as_far_as_timed(priced[-1], enough, known[-1], mine)
    best, why = _by_share_and_cost(priced, known[-1])
    if mine is None:
        return _Advice(best.k, f"{why} Take K = {_number(best.k)}.")
    if mine is best:
        return _Advice(best.k, f"{why} Keep K = {_number(best.k)}.")
    if _as_good(mine, best):
        top = priced[-1] if mine.seconds is not None and priced[-1].k > mine.k else known[-1]
        return _Advice(mine.k, f"{_gain_and_time(mine, top)} Keep K = {_number(mine.k)}.")
    return _Advice(best.k, f"{why} Take {_typed(best)}.")


def _as_good(mine: GainShare, best: GainShare) -> bool:
    """Whether the K of the model has the share of the ``best``, at no more time."""
    slower = mine.seconds is not None and best.seconds is not None and _times(mine, best) > FREE
    return not slower and (mine.share or 0.0) >= (best.share or 0.0) - UNCERTAIN


def _by_share_and_cost(rows: Sequence[GainShare], last: GainShare) -> tuple[GainShare, str]:
    """The K to take, and why. ``rows`` have shares and times; ``last`` is the largest K with a share, which may not
    have been timed."""
    top, enough = rows[-1], _first(rows, ENOUGH)
    if _times(top, rows[0]) <= FREE and enough is top and last is not top:
        free = f"Negatives are nearly free up to K = {_number(top.k)}"
        return top, f"{free}, which has {_part(top, last)} of the gain of K = {_number(last.k)}."
    up_to = "the largest K" if top is last else "the largest K whose step was timed"
    if _times(top, rows[0]) <= FREE and enough is top:
        return top, f"Negatives are nearly free here, and the gain grows up to {up_to}."
    if _times(top, enough) <= FREE and enough is not top:
        return top, _gain_and_time(enough, top)
    most = _first(rows, MOST)
    best = most if _times(enough, most) > DEAR else enough
    if best is top:
        return top, f"Each negative costs time, and the gain grows up to {up_to}."
    return best, f"Each negative costs time. {_gain_and_time(best, top)}"


def _free_as_far_as_timed(timed: GainShare, enough: GainShare, top: GainShare, mine: GainShare | None) -> _Advice:
    if mine is not None and _as_good(mine, enough):
        return _Advice(mine.k, f"{_gain_and_time(mine, top)} Keep K = {_number(mine.k)}.")
    take = f"K = {_number(enough.k)}" if mine is None else _typed(enough)
    return _Advice(
        enough.k,
        f"Negatives are nearly free up to K = {_number(timed.k)}, the largest K whose step was timed here. "
        f"K = {_number(enough.k)} has {_part(enough, top)} of the gain of K = {_number(top.k)}. "
        f"If a step with it is about as fast, take {take}.",
    )


def _by_cost_alone(timed: Sequence[GainShare], metric: str, own: float | None) -> _Advice:
    """Where no share is known."""
    unknown = f"How much of the gain each K brings is not known for {metric} here."
    if len(timed) < 2:
        return _Advice(None, f"{unknown} The time of a step at each K was not measured either.")
    first, last = timed[0], timed[-1]
    times = _times(last, first)
    longer = f"{times:.2f} times as long as" if times > 1.005 else "no longer than"
    cost = f"A step with K = {_number(last.k)} takes {longer} one with K = {_number(first.k)}"
    if times <= FREE:
        return _Advice(None, f"{unknown} {cost}, so negatives are nearly free. Leave K to the metric, the default.")
    tried = ",".join(f"{row.k:g}" for row in timed[:4] if own is None or not _alike(row.k, own))
    return _Advice(
        None, f"{unknown} {cost}. To measure the gain, run the job again with --compare {tried} and another --out."
    )


def _typed(row: GainShare) -> str:
    """Another K than the model's, and what to type for it."""
    return f"K = {_number(row.k)}: type --k {row.k:g} and another --out"


def _gain_and_time(row: GainShare, top: GainShare) -> str:
    about = "about " if row.interpolated or top.interpolated else ""
    share = f"K = {_number(row.k)} has {_part(row, top)} of the gain of K = {_number(top.k)}"
    if row.seconds is None or top.seconds is None:
        return f"{share}."
    return f"{share}, and a step takes {about}{100 * min(_times(row, top), 1.0):.0f}% of the time."


def _first(rows: Sequence[GainShare], part: float) -> GainShare:
    """The smallest K with ``part`` of the gain of the largest."""
    return next(row for row in rows if (row.share or 0.0) >= part * (rows[-1].share or 0.0))


def _times(row: GainShare, other: GainShare) -> float:
    return (row.seconds or 0.0) / max(other.seconds or 0.0, 1e-12)


def _share_at(shares: Sequence[GainShare], k: float) -> float | None:
    known = sorted((row.k, row.share) for row in shares if row.share is not None)
    if not known or not known[0][0] <= k <= known[-1][0]:
        return None
    return float(np.interp(np.log(k), np.log([at for at, _ in known]), [share for _, share in known]))


def _alike(k: float, other: float) -> bool:
    """Whether two K are the same but for rounding, as 374 and 374.3 are."""
    return abs(k - other) <= 0.01 * max(k, other)


def _part(row: GainShare, top: GainShare) -> str:
    """0.9 -> nine tenths."""
    part = (row.share or 0.0) / max(top.share or 0.0, 1e-12)
    tenths = min(round(10 * part), 10)
    if tenths == 10:
        return "all" if part > 0.995 else "nearly all"
    return f"about {_TENTHS[tenths]}"


def _interval(gap: QueryDifference) -> str:
    """Of the size of the difference, whichever side is ahead."""
    low, high = sorted((abs(gap.low or 0.0), abs(gap.high or 0.0)))
    return f"95% interval {low:.4f} to {high:.4f}, {gap.queries:,} queries"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _number(k: float) -> str:
    return f"{k:,.0f}" if k >= 10 or k == int(k) else f"{k:.1f}"

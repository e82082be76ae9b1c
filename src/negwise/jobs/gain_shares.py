"""The share of the gain at a few K beside the time of a step: what `Results.shares` holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from negwise.records import GainShare, Plan, StepCost
from negwise.theory.estimate import Estimate
from negwise.theory.gain import LEAST_CANDIDATES, share_of_gain
from negwise.theory.metric_k import is_deep

SHOWN_KS = (1.0, 4.0, 20.0, 100.0, 300.0, 1000.0)
"""Beside the most that there are."""


def shares_of(
    metric: str,
    candidates: int | None,
    costs: Sequence[StepCost],
    *,
    most: float | None = None,
    own: float | None = None,
    estimate: Estimate | None = None,
) -> tuple[GainShare, ...]:
    """Shares of the gain in ``metric`` among ``candidates`` at `SHOWN_KS`, at the largest K that was timed, at
    ``own``, the K of the model, and at ``most``, all that a row can have.

    The share is None where none was ever measured: among few candidates, and for AUC without an ``estimate``. The
    seconds are those of ``costs``, interpolated between two of them, and None beyond them.
    """
    timed = max((cost.k for cost in costs), default=1.0)
    others = {k for k in (*SHOWN_KS, timed) if own is None or not _same(k, own)}
    whole = most if most is None or own is None or not _same(most, own) else own
    ks = [k for k in sorted(others | (set() if own is None else {own})) if whole is None or k < whole]
    rows = [(k, False) for k in ks] + ([] if whole is None else [(float(whole), True)])
    known = _is_known(metric, candidates, estimate)
    found = (_share(k, metric, candidates, costs, estimate, known, last) for k, last in rows)
    return tuple(replace(row, own=row.k == own) for row in found)


def _same(k: float, own: float) -> bool:
    """Whether both are the same number but for rounding."""
    return abs(k - own) <= 0.01 * own


def measured_costs(plan: Plan) -> tuple[StepCost, ...]:
    """The seconds of a step at several K; where the plan has none, those of its two timed K."""
    times = plan.times
    return plan.costs or (StepCost(1.0, times.pilot_step), *([StepCost(times.k, times.step)] if times.k > 1 else []))


def seconds_at(k: float, costs: Sequence[StepCost]) -> float | None:
    """Seconds of a step with K = ``k``, linear between measured K; None outside of them."""
    ordered = sorted(costs, key=lambda cost: cost.k)
    if not ordered or not ordered[0].k <= k <= ordered[-1].k:
        return None
    return float(np.interp(k, [cost.k for cost in ordered], [cost.seconds for cost in ordered]))


def _is_known(metric: str, candidates: int | None, estimate: Estimate | None) -> bool:
    if is_deep(metric):
        return estimate is not None and estimate.determined
    return candidates is not None and candidates >= LEAST_CANDIDATES


def _share(
    k: float,
    metric: str,
    candidates: int | None,
    costs: Sequence[StepCost],
    estimate: Estimate | None,
    known: bool,
    last: bool,
) -> GainShare:
    seconds = seconds_at(k, costs)
    between = seconds is not None and all(cost.k != k for cost in costs)
    row = GainShare(k, metric, seconds=seconds, all=last, interpolated=between)
    if not known:
        return row
    if k == 1:  # what the gain is counted from
        return replace(row, share=0.0, low=0.0, high=0.0)
    found = share_of_gain(k, metric=metric, candidates=candidates, estimate=estimate)
    return replace(row, share=found.share, low=found.low, high=found.high)

"""Whether a model was hardly trained, and the budget that would do.

A curve that rises like 1 - exp(-t / tau) has 9% of its rise in the last third of 3 tau, 15% in that of 2 tau and 23% in
that of tau. So a rise of 15% in the last third is steep: the model has had fewer than two time constants. Where the
rate decays a curve may level off at once, so the last tenth must rise as well, by 3% (3.5% at 2 tau).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from negwise.records import RunLog
from negwise.report.formatting import format_count, format_seconds, metric_name
from negwise.theory.forecast import forecast

HARDLY = "The model is hardly trained"
STEEP, STILL = 0.15, 0.03
"""Of the whole rise, in the last third and in the last tenth of the steps."""
SIGMAS = 2.0
"""Standard errors over queries that such a rise must have."""
MOST_TIMES = 10.0
"""A forecast further than this many times the training so far is not told."""


@dataclass(frozen=True)
class Undertrained:
    """``why`` the model counts as hardly trained, and the ``steps`` that would do, or that are the ``least``."""

    why: str
    steps: float
    least: bool = False


def find_undertrained(
    steps: int, epoch: int, best_step: int | None, log: RunLog | None, metric: str
) -> Undertrained | None:
    """None for a model that saw an epoch and whose validation ``metric`` no longer rises steeply.

    Nor does its AUC, which tells sooner: a top-n metric of few hits is as good as all noise.
    """
    curves = {name: _curve(log, name) for name in (metric, "auc")}
    steep = [name for name, (at, *scores) in curves.items() if len(at) >= 3 and _is_steep(at, *scores)]
    at, values, _ = curves[steep[0] if steep else metric]
    rising = bool(steep) and best_step == at[-1]
    if steps < epoch:
        share = f"{steps / epoch:.2g}"
        why = f"{format_count(steps)} steps are {share} of an epoch ({format_count(epoch)} steps)"
        needed = _needed(at, values, steps) if rising else 0.0
        return Undertrained(why, max(float(epoch), needed), least=needed <= epoch)
    if not rising:
        return None
    return Undertrained(
        f"validation {metric_name(steep[0])} was still rising steeply at the last step", _needed(at, values, steps)
    )


def undertrained_text(
    found: Undertrained, steps: int, training: float | None, whole: float | None, budget: float | None = None
) -> str:
    """The notice. ``training`` and ``whole`` are seconds of the run and of the job, ``budget`` those that it had.

    What would do is a budget where time ran out, else a number of steps: the recipe, or what was typed, ended first.
    """
    first = f"{HARDLY}: {found.why}."
    wanted = f"--steps {_rounded_up(found.steps)}"
    if training is None or steps < 1:
        return f"{first} Try about {wanted}."
    seconds = (whole or training) + training / steps * (found.steps - steps)
    if budget is not None and seconds > budget:
        wanted = f"--budget {budget_text(seconds)}"
    else:
        wanted += f" (about {format_seconds(seconds)})"
    if found.least:
        return f"{first} One epoch needs {wanted} here, and most models need several epochs."
    return f"{first} Its curve so far suggests {wanted}."


def _rounded_up(steps: float) -> int:
    """117 -> 120, 1234 -> 1300."""
    unit = 10 ** max(len(str(math.ceil(steps))) - 2, 0)
    return math.ceil(steps / unit) * unit


def budget_text(seconds: float) -> str:
    """A budget as it is typed, rounded up: 50 -> 60s, 130 -> 3m, 9000 -> 3h."""
    if seconds <= 90:
        return f"{10 * math.ceil(seconds / 10)}s"
    if seconds <= 5400:
        return f"{math.ceil(seconds / 60)}m"
    return f"{math.ceil(seconds / 3600)}h"


def _curve(log: RunLog | None, metric: str) -> tuple[list[float], list[float], list[float]]:
    """Steps, values and standard errors of ``metric`` on validation."""
    records = () if log is None else log.of_split("val")
    known = [(record.step, value, record.error(metric)) for record in records if (value := record.value(metric))]
    return [row[0] for row in known], [row[1] for row in known], [row[2] or 0.0 for row in known]


def _is_steep(at: Sequence[float], values: Sequence[float], errors: Sequence[float]) -> bool:
    def rise(share: float) -> float:
        return values[-1] - float(np.interp(at[-1] - share * (at[-1] - at[0]), at, values))

    whole = rise(1.0)
    return rise(1 / 3) > max(STEEP * whole, SIGMAS * errors[-1]) and rise(1 / 10) > STILL * whole


def _needed(at: Sequence[float], values: Sequence[float], steps: int) -> float:
    """Steps at which the curve settles, from twice to ten times those it has; twice where no curve fits."""
    found = forecast(np.array(at, dtype=np.float64), np.array(values)) if len(at) >= 5 else None
    settled = 2.0 * steps if found is None else found.settles_at
    return min(max(settled, 2.0 * steps), MOST_TIMES * steps)

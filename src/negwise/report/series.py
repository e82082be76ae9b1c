"""An arm over training: the logs of its seeds as one series, and long series thinned to what a figure can show.

Records of a log cover the steps since the record before, so means over several of them weigh each by its steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.records import RunLog
from negwise.report.subject import Arm, Mean, Trial

MOST_ROWS = 2400
"""Rows that one figure may have, over all its arms: the page stays small, and no screen shows more."""

STEP_FIELDS = ("k", "k_used", "loss", "log_k1", "mi_bound", "time")


@dataclass(frozen=True)
class Window:
    """Steps ``start < step <= end`` of an arm, the mean over its seeds; None where a value is undefined there."""

    start: float
    end: float
    values: dict[str, float | None]
    began: float | None
    """Seconds at ``start``, as ``values["time"]`` are those at ``end``."""


@dataclass(frozen=True)
class Point:
    """An evaluation of an arm: the mean over seeds of a metric, and of the seconds that had passed."""

    step: float
    score: Mean
    seconds: float | None


def most_points(arms: Sequence[Arm], most: int = 120) -> int:
    """How many points each arm may have in a figure."""
    return max(12, min(most, MOST_ROWS // max(len(arms), 1)))


def logged(arm: Arm) -> list[RunLog]:
    """The logs to show: those of the seeds that are done, or of all that have begun where none is."""
    return [trial.log for trial in _trials(arm) if trial.log is not None]


def windows(arm: Arm, points: int) -> list[Window]:
    """The step records of an arm in at most ``points`` windows, over the steps that all its seeds logged."""
    logs = [log for log in logged(arm) if log.steps]
    steps = _shared([[record.step for record in log.steps] for log in logs])
    if not steps:
        return []
    tables = [_table(log, set(steps)) for log in logs]  # seeds of (records, fields)
    ends = np.array(steps, dtype=np.float64)
    weights = np.diff(ends, prepend=0.0)
    cuts = np.linspace(0, len(ends), min(points, len(ends)), endpoint=False).astype(int)
    found: list[Window] = []
    start: float = 0.0
    began: float | None = 0.0
    for low, high in zip(cuts, [*cuts[1:], len(ends)], strict=True):
        mean = np.mean([np.average(table[low:high], axis=0, weights=weights[low:high]) for table in tables], axis=0)
        values = {name: _known(value) for name, value in zip(STEP_FIELDS, mean, strict=True)}
        values["time"] = _known(np.mean([table[high - 1, -1] for table in tables]))
        found.append(Window(start, float(ends[high - 1]), values, began))
        start, began = float(ends[high - 1]), values["time"]
    return found


def evaluations(arm: Arm, split: str, metric: str, points: int) -> list[Point]:
    """A metric over training, at the evaluations that all seeds of the arm share; evenly left out beyond ``points``."""
    seen = [(log, _scores(log, split, metric)) for log in logged(arm)]
    seen = [(log, table) for log, table in seen if table]
    clocks = [_clock(log) for log, _ in seen]
    steps = _shared([list(table) for _, table in seen])
    return [
        Point(float(step), Mean.over(table[step] for _, table in seen), _mean([clock.get(step) for clock in clocks]))
        for step in thinned(steps, points)
    ]


def thinned(items: Sequence[Any], most: int) -> list[Any]:
    """At most ``most`` items, evenly spread, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, most).round().astype(int)]


def k_at(arm_windows: Sequence[Window], step: float) -> float | None:
    """K as used in the window that ends at or after ``step``'s last update (the first window for step 0)."""
    for window in arm_windows:
        if step <= window.end:
            return window.values["k_used"]
    return arm_windows[-1].values["k_used"] if arm_windows else None


def _scores(log: RunLog, split: str, metric: str) -> dict[float, float]:
    """A metric of a split by step."""
    found = {record.step: record.value(metric) for record in log.of_split(split)}
    return {step: value for step, value in found.items() if value is not None}


def _trials(arm: Arm) -> Sequence[Trial]:
    with_log = [trial for trial in arm.seeds if trial.log is not None]
    return [trial for trial in with_log if trial.state == "done"] or with_log


def _shared(lists: Sequence[Sequence[float]]) -> list[float]:
    """The steps that stand in all of ``lists``, in order."""
    return sorted(set.intersection(*map(set, lists))) if lists else []


def _table(log: RunLog, steps: set[float]) -> NDArray[np.float64]:
    """The fields of the records at ``steps`` (records, fields); NaN where null."""
    return np.array(
        [[getattr(record, name) for name in STEP_FIELDS] for record in log.steps if record.step in steps],
        dtype=np.float64,
    )


def _clock(log: RunLog) -> dict[float, float | None]:
    """Seconds that had passed at a step; an evaluation comes right after the record of its step."""
    start: dict[float, float | None] = {0: 0.0}
    return start | {record.step: record.time for record in log.steps}


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None

"""Curves of an arm over training: the mean over the logs of its seeds, with few enough points for a figure.

A step record covers the steps since the record before it, so a mean over several records weighs each by its steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.records import EvalRecord, RunLog
from negwise.report.report_data import ArmRuns, Mean

MAX_ROWS = 2400
"""Rows of one figure at most, over all its arms: this keeps the page small, and no screen shows more."""
MIN_POINTS, MAX_POINTS = 12, 120
"""Limits for the points of one arm in a figure."""
STEP_FIELDS = ("k", "k_used", "loss", "log_k1", "mi_bound", "time")


@dataclass(frozen=True)
class Window:
    """Means over the steps ``start < step <= end`` and over the seeds of an arm; None if a value is undefined there."""

    start: float
    end: float
    values: dict[str, float | None]
    start_seconds: float | None
    """Seconds of training at ``start``; ``values["time"]`` are those at ``end``."""


@dataclass(frozen=True)
class CurvePoint:
    """A metric of an arm at one evaluation, and the seconds of training until then: means over seeds.

    ``error`` is the standard error over seeds, or with one seed over its ``queries``; each seed has as many.
    """

    step: float
    score: Mean
    seconds: float | None
    error: float | None
    queries: int | None


def max_points(arms: Sequence[ArmRuns]) -> int:
    """Points that each arm may have in a figure."""
    return max(MIN_POINTS, min(MAX_POINTS, MAX_ROWS // max(len(arms), 1)))


def step_windows(arm: ArmRuns, points: int) -> list[Window]:
    """The step records of an arm in at most ``points`` windows, over the steps that all its seeds logged."""
    logs = [log for log in _logs(arm) if log.steps]
    steps = _shared_steps([[record.step for record in log.steps] for log in logs])
    if not steps:
        return []
    tables = [_table(log, set(steps)) for log in logs]  # seeds of (records, fields)
    ends = np.array(steps, dtype=np.float64)
    weights = np.diff(ends, prepend=0.0)
    cuts = np.linspace(0, len(ends), min(points, len(ends)), endpoint=False).astype(int)
    windows: list[Window] = []
    start: float = 0.0
    start_seconds: float | None = 0.0
    for low, high in zip(cuts, [*cuts[1:], len(ends)], strict=True):
        mean = np.mean([np.average(table[low:high], axis=0, weights=weights[low:high]) for table in tables], axis=0)
        values = {name: _none_if_nan(value) for name, value in zip(STEP_FIELDS, mean, strict=True)}
        values["time"] = _none_if_nan(np.mean([table[high - 1, -1] for table in tables]))
        windows.append(Window(start, float(ends[high - 1]), values, start_seconds))
        start, start_seconds = float(ends[high - 1]), values["time"]
    return windows


def metric_curve(arm: ArmRuns, split: str, metric: str, points: int) -> list[CurvePoint]:
    """A metric over training at evaluations that all seeds of the arm share, at most ``points`` of them."""
    logs = [log for log in _logs(arm) if _evaluations(log, split, metric)]
    found = [_evaluations(log, split, metric) for log in logs]
    clocks = [_seconds_by_step(log) for log in logs]
    return [
        _point(float(step), [each[step] for each in found], metric, _mean([clock.get(step) for clock in clocks]))
        for step in thin(_shared_steps([list(each) for each in found]), points)
    ]


def _point(step: float, evaluations: Sequence[EvalRecord], metric: str, seconds: float | None) -> CurvePoint:
    score = Mean.over(each.value(metric) for each in evaluations)
    error = evaluations[0].error(metric) if score.n == 1 else score.se
    return CurvePoint(step, score, seconds, error, evaluations[0].queries)


def thin(items: Sequence[Any], limit: int) -> list[Any]:
    """At most ``limit`` items, evenly spread, with the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[i] for i in np.linspace(0, len(items) - 1, limit).round().astype(int)]


def k_at_step(arm_windows: Sequence[Window], step: float) -> float | None:
    """The K that was used in the window with ``step``; for step 0 in the first window."""
    for window in arm_windows:
        if step <= window.end:
            return window.values["k_used"]
    return arm_windows[-1].values["k_used"] if arm_windows else None


def _evaluations(log: RunLog, split: str, metric: str) -> dict[float, EvalRecord]:
    """The evaluations of a split that have a metric, by step."""
    return {record.step: record for record in log.of_split(split) if record.value(metric) is not None}


def _logs(arm: ArmRuns) -> list[RunLog]:
    """The logs of the seeds that are done; if none is done, of all that have a log."""
    return [run.log for run in arm.done if run.log is not None] or [run.log for run in arm.seeds if run.log is not None]


def _shared_steps(lists: Sequence[Sequence[float]]) -> list[float]:
    """The steps that all ``lists`` have, in order."""
    return sorted(set.intersection(*map(set, lists))) if lists else []


def _table(log: RunLog, steps: set[float]) -> NDArray[np.float64]:
    """The fields of the records at ``steps`` (records, fields); NaN for null."""
    return np.array(
        [[getattr(record, name) for name in STEP_FIELDS] for record in log.steps if record.step in steps],
        dtype=np.float64,
    )


def _seconds_by_step(log: RunLog) -> dict[float, float | None]:
    """Seconds of training by step. An evaluation comes right after the record of its step."""
    start: dict[float, float | None] = {0: 0.0}
    return start | {record.step: record.time for record in log.steps}


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None

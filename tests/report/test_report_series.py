"""Logs of several seeds as one series: worked out by hand."""

import pytest

from negwise.records import EvalRecord, RunLog, StepRecord
from negwise.report.report_data import ArmRuns, SeedRun
from negwise.report.series import k_at_step, max_points, metric_curve, step_windows, thin


def step(at, loss, time=None, k=2.0, bound=0.5):
    time = at if time is None else time
    return StepRecord(at, time, k=k, k_used=k, loss=loss, log_k1=1.0, mi_bound=bound)


def val(at, auc, **metrics):
    return EvalRecord(auc, metrics=metrics, step=at, split="val")


def arm_of(*logs, states=None):
    states = states or ["done"] * len(logs)
    runs = [SeedRun(i, "", state, log=log) for i, (log, state) in enumerate(zip(logs, states, strict=True))]
    return ArmRuns("a", "2", 2.0, None, False, None, (), tuple(runs))


def test_a_window_weighs_records_by_their_steps():
    arm = arm_of(RunLog((step(1, 4.0), step(2, 2.0), step(10, 1.0, bound=None))))
    (whole,) = step_windows(arm, 1)
    assert (whole.start, whole.end, whole.start_seconds) == (0.0, 10.0, 0.0)
    assert whole.values["loss"] == pytest.approx((4.0 * 1 + 2.0 * 1 + 1.0 * 8) / 10)
    assert whole.values["time"] == 10.0
    assert whole.values["mi_bound"] is None  # undefined somewhere in the window
    assert [window.values["loss"] for window in step_windows(arm, 100)] == [4.0, 2.0, 1.0]


def test_seeds_are_averaged_where_all_have_records():
    one = RunLog((step(5, 1.0, time=10.0), step(10, 3.0, time=20.0)))
    two = RunLog((step(5, 2.0, time=14.0), step(7, 9.0, time=19.0)))
    (shared,) = step_windows(arm_of(one, two), 10)
    assert (shared.end, shared.values["loss"], shared.values["time"]) == (5.0, 1.5, 12.0)
    both = step_windows(arm_of(one, two, states=["done", "failed"]), 10)  # what failed does not cut what is done
    assert [window.values["loss"] for window in both] == [1.0, 3.0]
    (begun,) = step_windows(arm_of(one, two, states=["waiting", "failed"]), 10)
    assert begun.values["loss"] == 1.5


def test_evaluations_have_means_errors_and_the_clock():
    one = RunLog((step(4, 1.0, time=8.0),), (val(0, 0.5), val(4, 0.8, hit=0.1)))
    two = RunLog((step(4, 1.0, time=10.0),), (val(0, 0.5), val(4, 0.9), val(8, 0.95)))
    start, end = metric_curve(arm_of(one, two), "val", "auc", 10)
    assert (start.step, start.seconds, end.step, end.seconds) == (0.0, 0.0, 4.0, 9.0)
    assert (end.score.value, end.score.se, end.score.n) == (pytest.approx(0.85), pytest.approx(0.05), 2)
    (hit,) = metric_curve(arm_of(one, two), "val", "hit", 10)  # only one seed has it
    assert (hit.score.value, hit.score.se) == (0.1, None)
    assert metric_curve(arm_of(one, two), "test", "auc", 10) == []


def test_k_at_a_step_is_that_of_its_record():
    course = step_windows(arm_of(RunLog((step(5, 1.0, k=1.0), step(10, 1.0, k=3.0)))), 10)
    assert [k_at_step(course, at) for at in (0, 5, 6, 10, 11)] == [1.0, 1.0, 3.0, 3.0, 3.0]
    assert k_at_step([], 3) is None


def test_thinning_keeps_both_ends():
    assert thin(range(5), 5) == [0, 1, 2, 3, 4]
    kept = thin(range(1000), 7)
    assert len(kept) == 7 and (kept[0], kept[-1]) == (0, 999) and kept == sorted(set(kept))
    assert max_points([None] * 3) == 120 and max_points([None] * 100) == 24 and max_points([None] * 10_000) == 12

"""Seconds of a step: the clock on steps of known length, folders that cannot be timed, and the table."""

import numpy as np
import pytest
from evidence_records import PACE, make, rows_of

from evidence.stopwatch import reproduce_seconds, step_ms
from evidence.tables import paces
from negwise.errors import InputError
from negwise.records import StepRecord
from negwise.requests import TrainRequest
from negwise.tasks import Task

NOTHING = Task(None, None, None, None, None, None)


def test_the_clock_counts_steps_and_leaves_out_the_warm_up(monkeypatch):
    """Steps that take 1, 2, 3, ... seconds, of which the first ten warm up: the median of 11 to 15 is 13."""
    now = iter(np.cumsum(np.arange(1.0, 16.0)))
    monkeypatch.setattr("evidence.stopwatch.time.perf_counter", lambda: next(now))

    def fit(request, task, _folder, *, show):
        assert task.splits == {} and request.eval_every == request.steps == 15
        with show as clock:
            for step in range(request.steps):
                clock.step(StepRecord(step + 1))

    monkeypatch.setattr("evidence.stopwatch.fit_task", fit)
    assert step_ms(TrainRequest(data="x", model="nrms"), NOTHING, 15) == pytest.approx(13_000)


def test_the_clock_divides_by_the_steps_that_a_record_has(monkeypatch):
    """Two seconds a step, recorded three at a time."""
    now = iter(np.arange(6.0, 1000.0, 6.0))
    monkeypatch.setattr("evidence.stopwatch.time.perf_counter", lambda: next(now))

    def fit(request, _task, _folder, *, show):
        for step in range(3, request.steps + 1, 3):
            show.step(StepRecord(step))

    monkeypatch.setattr("evidence.stopwatch.fit_task", fit)
    assert step_ms(TrainRequest(data="x", model="nrms"), NOTHING, 30) == pytest.approx(2_000)


def test_a_folder_that_is_no_task_has_no_seconds(tmp_path):
    with pytest.raises(InputError, match=r"expected the folder of one task.*records there: none"):
        reproduce_seconds(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "clicks.json").write_text('{"task": "clicks", "worlds": []}')
    with pytest.raises(InputError, match=r"expected the folder of one task.*clicks\.json"):
        reproduce_seconds(tmp_path)
    (tmp_path / "clicks.json").rename(tmp_path / "items.json")
    (tmp_path / "items.json").write_text('{"task": "items", "arms": []}')
    with pytest.raises(InputError, match="no finished run there"):
        reproduce_seconds(tmp_path)
    with pytest.raises(InputError, match="steps: got 11, expected 12 or more"):
        reproduce_seconds(tmp_path, steps=11)


def test_the_table_of_paces(tmp_path):
    one = make(tmp_path, pace=PACE)
    assert rows_of(paces({"items": one})) == [["items", "1: 2.0, 5: 3.0, 100: 8.0", "here"]]

"""Quality per second: the clock on steps of known length, schedules by loops, folders that cannot be timed."""

import math

import numpy as np
import pytest
from evidence_records import PACE, make, rows_of, says, student

from evidence.seconds import auc_after, clock, per_second, seconds, step_seconds
from evidence.stopwatch import reproduce_seconds, step_ms
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


def by_hand(rule, steps):
    """Seconds of each step, K and time written out."""
    found = []
    for step in range(steps):
        share = step / (steps - 1)
        if rule == "ans":
            k = 1 + 4 * share / 0.1 if share <= 0.1 else 1 + 4 * (1 - share) / 0.9
        else:
            k = 1 + 4 * min(1, share / 0.1)
        found.append((2.0 + (3.0 - 2.0) * math.log(k) / math.log(5)) / 1000)
    return found


def test_seconds_of_a_schedule_by_loops(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    for rule in ("ans", "warm"):
        assert clock(one, f"{rule}:5") == pytest.approx([sum(by_hand(rule, 40)[:n]) for n in range(41)], abs=1e-12)
    assert clock(one, "5")[-1] == pytest.approx(40 * 0.003)
    between = 0.003 + 0.005 * math.log(20 / 5) / math.log(100 / 5)
    assert step_seconds(one, np.array([20.0])) == pytest.approx([between])
    with pytest.raises(InputError, match="K goes from 101 to 101, but steps were timed from 1 to 100"):
        step_seconds(one, np.array([101.0]))


def test_every_arm_at_the_time_of_fixed_k(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    budget = 40 * 0.003

    def curve(rule, seed):
        return next(arm for arm in one.record["arms"] if arm["rule"] == rule)["seeds"][seed]["curve"]["val"]["auc"]

    for seed in range(3):
        # K = 1 has ended by then; K = 100 has done 15 of its 40 steps, of which 20 lie between two evaluations
        assert auc_after(one, "1", budget)[seed] == pytest.approx(curve("1", seed)[2])
        first, second, _ = curve("100", seed)
        assert auc_after(one, "100", budget)[seed] == pytest.approx(first + (second - first) * 15 / 20)
    rows = {row[1]: row for row in rows_of(seconds([one]))}
    assert list(rows) == ["1", "**5**", "100", "ans:5", "warm:5"]
    assert rows["1"][2:5] == ["2.00", "0.1", "0.1"] and rows["1"][5].endswith(", its end after 0.1 s")
    assert rows["**5**"][6] == "" and "end" not in rows["100"][5]
    gaps = np.array([curve("1", seed)[2] - curve("5", seed)[2] for seed in range(3)])
    assert says(rows["1"][6], *student(gaps))


def test_a_schedule_with_fewer_seeds_is_compared_on_those_and_marked(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    arms = {arm["rule"]: arm for arm in one.record["arms"]}
    ends = {rule: [run["curve"]["val"]["auc"][2] for run in arms[rule]["seeds"]] for rule in ("5", "warm:5")}
    del arms["warm:5"]["seeds"][1]
    del arms["ans:5"]["seeds"][1:]  # one seed has no interval
    rows = {row[1]: row for row in rows_of(seconds([one]))}
    assert list(rows) == ["1", "**5**", "100", "warm:5, 2 of 3 seeds"]
    gaps = np.array([ends["warm:5"][seed] - ends["5"][seed] for seed in (0, 2)])
    assert says(rows["warm:5, 2 of 3 seeds"][6], *student(gaps))


def test_the_figure_of_seconds(tmp_path):
    one = make(tmp_path, steps=40, pace=PACE)
    figure = per_second(one)
    assert figure.name == "items-seconds" and figure.svg().startswith("<svg")
    row = next(row for row in figure.rows if row["arm"] == "ans:5" and row["step"] == 20)
    assert row["seconds"] == pytest.approx(sum(by_hand("ans", 40)[:20]), rel=1e-5)
    curves = next(arm for arm in one.record["arms"] if arm["rule"] == "ans:5")["seeds"]
    assert row["auc"] == pytest.approx(np.mean([run["curve"]["val"]["auc"][1] for run in curves]), rel=1e-5)

"""The budget is kept, on a machine whose steps take as long as the test says: a clock that only work moves."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import negwise as nw
from negwise.jobs import main_job, plan, race_plan, step_timing
from negwise.jobs.arms import parse_arm
from negwise.jobs.plan import EVALUATION_SHARE, LAST, last_seconds
from negwise.jobs.plan_in_words import explain, planned_seconds
from negwise.jobs.preparation import format_duration
from negwise.jobs.race import LEAST_SHARE
from negwise.jobs.race_plan import PreparedRace
from negwise.records import (
    Candidate,
    JobRecord,
    Plan,
    RaceStart,
    RunLengths,
    Start,
    StepCost,
    StepTimes,
    read_race,
    read_record,
)
from negwise.training import evaluation, loop

READING, STEP, EVALUATION, REST = 3.0, 0.8, 1.0, 2.0
"""Seconds on that clock."""


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{rng.integers(0, 40)},{at}" for user in range(60) for at in range(8)]
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture
def clock(monkeypatch):
    """What a machine would take; ``busy`` makes steps and evaluations so many times slower after ``after`` seconds."""
    now = SimpleNamespace(seconds=0.0, busy=1.0, after=0.0)
    fake = SimpleNamespace(monotonic=lambda: now.seconds, perf_counter=lambda: now.seconds)

    def taking(owner, name, seconds):
        usual = getattr(owner, name)

        def timed(*parts, **named):
            now.seconds += seconds * (now.busy if now.seconds >= now.after else 1.0)
            return usual(*parts, **named)

        monkeypatch.setattr(owner, name, timed)

    for module in (loop, step_timing, race_plan, main_job):
        monkeypatch.setattr(module, "time", fake)
    taking(race_plan, "look_at_data", READING)
    taking(loop.Run, "update_weights", STEP)
    taking(evaluation.Evaluation, "ranks", EVALUATION)
    taking(step_timing, "evaluate_model", EVALUATION)
    taking(main_job, "add_answer_facts", REST)
    monkeypatch.setattr(race_plan, "FEWEST_STEPS", 2)
    return now


@pytest.mark.parametrize("busy", [1.0, 1.5])
def test_a_job_keeps_its_budget(data, tmp_path, clock, busy):
    """Within a tenth, also on a machine that becomes busy while the job works."""
    clock.busy, clock.after = busy, 20.0
    result = nw.run(data, out=tmp_path / "job", budget="60s", batch_size=16)
    assert 0.9 * 60 <= clock.seconds <= 1.1 * 60
    assert result.record.end is None  # the time ended it
    start, *_ = read_race(tmp_path / "job" / "race.jsonl")
    assert len(start.candidates) == 2 and start.joins
    if busy == 1.0:  # counted by hand: the steps that one run alone has room for in the time for training
        spent = read_record(JobRecord, tmp_path / "job" / "job.json").plan.spent
        plain = (60 - spent - last_seconds(60)) / (1 + EVALUATION_SHARE) / STEP
        assert result.record.arms[0].done[0].steps >= LEAST_SHARE * plain


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(
    ("options", "queries"),
    [({}, 40), ({"race": False}, None), ({"learning_rate": 1e-3}, None), ({"pairs": True}, None)],
)
def test_a_race_of_users_validates_on_fewer_where_evaluations_are_dear(data, tmp_path, monkeypatch, options, queries):
    """One second of 60 an evaluation leaves time for five of all users, and a race wants to look more often."""
    monkeypatch.setattr(plan, "RACE_QUERIES", 40)
    if options.pop("pairs", False):  # whose evaluations are hardly cheaper with fewer
        data = tmp_path / "pairs.csv"
        data.write_text(
            "\n".join(["query,positive", *(f"question {n},answer {n} of {n * n}" for n in range(600))]) + "\n"
        )
    request = nw.requests.RunRequest(data=str(data), out=str(tmp_path / "job"), budget="60s", batch_size=16, **options)
    prepared = race_plan.prepare_race(tmp_path / "job", request, parse_arm("4", "model"), lambda _: None)
    assert prepared.plan.val_queries == queries
    assert len(prepared.task.splits["val"].query_examples) == (queries or 60)


TIMES = StepTimes(step=0.2, evaluation=1.0, pilot_step=0.2, pilot_evaluation=2.0, k=100.0, epoch=100)
COSTS = (StepCost(1.0, 0.2), StepCost(100.0, 0.2))


def prepared(most=10**6, start=None):
    plan = Plan(RunLengths(0, 1, 200, 100.0, 1), TIMES, 10.0, 1, {}, costs=COSTS, start=start)
    task = SimpleNamespace(data=SimpleNamespace(name="sequences"))
    return PreparedRace(None, 1e-3, ("hit@5",), plan, most, task, None)


def told(race, most=10**6, start=None, **options):
    request = nw.requests.RunRequest(data="x", out="y", **options)
    return explain(race, prepared(most, start), request)


ALONE = RaceStart((Candidate("metric", 1e-3, 300, 30),), "why")
THREE = RaceStart(
    (Candidate("metric", 1e-3, 300, 30), Candidate("metric", 3e-3, 300, 30)), "why",
    (Candidate("metric", 9e-3, 300, 30), Candidate("metric", 3.33e-4, 300, 30)),
)  # fmt: skip
EACH = 1.05 * (300 * 0.2 + 11 * 1.0) + 1.0
"""Seconds of one run counted by hand: steps, ten evaluations and the one at the start, and the test split."""
LOSER = 1.05 * (60 * 0.2 + 3 * 1.0)
"""Of a candidate up to the rung, at the second of its evaluations."""


def test_the_plan_says_one_time_for_all_of_it():
    assert "It takes 5m in all." in told(ALONE, budget="5m")
    both = told(ALONE, budget="5m", seeds=3, compare=("1", "100", "1"))
    assert f"It takes about {format_duration(300 + 4 * EACH)} in all: 5m for the model, about 76 s for each" in both
    assert "2 more seeds and 2 other K" in both
    started = Start("before-1", "x", 120.0, goes_on=True)
    assert "It takes about 3 minutes, the rest of 5m, in all." in told(ALONE, start=started, budget="5m")


def test_without_a_budget_the_time_has_everything_in_it():
    """Planning, the race, its losers and evaluations, and what follows."""
    for race, losers in ((ALONE, 0), (THREE, 2)):
        request = nw.requests.RunRequest(data="x", out="y", steps=300)
        main, each = planned_seconds(race, prepared(), request)
        assert each == pytest.approx(EACH)
        assert main == pytest.approx(10.0 + EACH + losers * LOSER + LAST)
    assert f"It takes about {format_duration(main)} in all." in told(THREE, steps=300)
    assert "a race of 2 candidates for 60 steps" in told(THREE, steps=300)


def test_a_recipe_that_ends_before_the_budget_is_told():
    found = told(ALONE, most=300, budget="1h")
    assert f"It takes about {format_duration(10 + EACH + LAST)} of 1h in all. The recipe's epochs end then." in found
    assert "of 1h in all. The steps that were typed end then." in told(ALONE, budget="1h", steps=300)


def test_what_is_left_over_is_on_record(data, tmp_path, clock, monkeypatch):
    """The recipe's 60 epochs of a step end long before an hour; a job that is resumed says the same."""
    monkeypatch.setattr(main_job, "no_longer_rises", lambda *_, **__: False)
    said = []
    request = nw.requests.RunRequest(data=str(data), out=str(tmp_path / "job"), budget="1h", batch_size=64, race=False)
    result = main_job.run_job(request, log=said.append)
    end, steps = result.record.end, result.record.arms[0].done[0].steps
    assert (end.why, end.step, end.planned, end.budget) == ("epochs", steps, steps, "1h")
    assert end.seconds_left == pytest.approx(3600 - clock.seconds + REST - last_seconds(3600), abs=2)
    assert any("where the recipe's epochs end. About" in line and "of 1h are left over" in line for line in said)
    path = tmp_path / "job" / "race.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"kind": "end"' not in line))  # killed before it was written
    assert main_job.run_job(request, log=said.append).record.end == end


def test_training_that_ends_early_says_what_is_left(data, tmp_path, clock, monkeypatch):
    monkeypatch.setattr(main_job, "no_longer_rises", lambda log, **_: log.of_split("val")[-1].step >= 40)
    said = []
    request = nw.requests.RunRequest(data=str(data), out=str(tmp_path / "job"), budget="60s", batch_size=16, race=False)
    end = main_job.run_job(request, log=said.append).record.end
    assert end.why == "level" and 40 <= end.step < end.planned
    assert end.seconds_left == pytest.approx(60 - clock.seconds + REST - last_seconds(60), abs=2)
    assert any(f"at step {end.step} of {end.planned}" in line and "of 60s are left over" in line for line in said)

"""The race: who goes on, what it costs, and that a job killed at any point ends with the same winner and weights."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy import stats

import negwise as nw
from negwise.errors import InputError
from negwise.jobs import main_job, race, race_plan
from negwise.jobs.arms import parse_arm
from negwise.jobs.race import decide, look, rung_step, share_of_survivor, stages_of
from negwise.metrics import Ranks
from negwise.records import (
    Candidate,
    Decision,
    EvalRecord,
    Horizon,
    Plan,
    RaceStart,
    RunLengths,
    RunLog,
    StepCost,
    StepTimes,
    append_race,
    read_race,
)
from negwise.training import checkpoint


def ranks(above, candidates=50):
    above = np.asarray(above)
    ones = np.ones(len(above), np.int64)
    return Ranks(above, ones, ones, np.full(len(above), candidates))


def hits(share, queries=400, seed=0):
    """Ranks of which a ``share`` are in the top 5."""
    return ranks(np.where(np.random.default_rng(seed).random(queries) < share, 0, 20))


def test_the_best_goes_on():
    found = decide({"a": hits(0.3), "b": hits(0.6, seed=1), "c": hits(0.1, seed=2)}, 40, "hit@5")
    assert found.kept == ("b",) and found.dropped == ("a", "c")
    assert found.values["b"] == pytest.approx(float(np.mean(hits(0.6, seed=1).above < 5)))


def test_the_recipe_stays_unless_another_is_clearly_ahead():
    """By SciPy's paired t test at 99%: who goes on at the end, and who is dropped on the way."""
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        share = rng.choice([0.5, 0.62, 0.7])
        first, other = (hits(one, queries=100, seed=int(rng.integers(1e9))) for one in (0.5, share))
        test = stats.ttest_rel(1.0 * (other.above < 5), 1.0 * (first.above < 5))
        ahead, behind = (bool(test.pvalue < 0.01 and sign * test.statistic > 0) for sign in (1, -1))
        seen.add(ahead)
        assert decide({"first": first, "other": other}, 9, "hit@5").kept == (("other",) if ahead else ("first",))
        assert look({"first": first, "other": other}, 9, "hit@5").dropped == (("other",) if behind else ())
        assert look({"first": other, "other": first}, 9, "hit@5").dropped == (("other",) if ahead else ())
    assert seen == {True, False}


def test_the_recipe_is_not_dropped_on_the_way():
    found = look({"recipe": hits(0.1), "high": hits(0.8, seed=1), "low": hits(0.1, seed=2)}, 40, "hit@5")
    assert found.kept == ("recipe", "high") and found.dropped == ("low",)


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_the_one_that_goes_on_has_most_of_the_time(candidates):
    """Losers train a quarter of the winner's steps at most; together that is the time of one plain run."""
    share = share_of_survivor(candidates)
    assert share >= race.LEAST_SHARE
    assert share * (1 + race.RUNG * (candidates - 1)) == pytest.approx(1)


def test_a_rung_is_an_evaluation():
    assert rung_step(Candidate("online", 1e-3, 600, 30)) == 150
    assert stages_of([Candidate("online", 1e-3, 600, 30)]) == (0.08, 0.16, 0.24)  # steps 60, 90 and 150
    assert stages_of([Candidate("online", 1e-3, 600, 120)]) == (0.24,)  # all at the first evaluation
    assert rung_step(Candidate("online", 1e-3, 600, 120)) == 120
    assert rung_step(Candidate("online", 1e-3, 600, 600)) == 600


def test_the_record_survives_half_a_line(tmp_path):
    path = tmp_path / "race.jsonl"
    start = RaceStart((Candidate("online", 1e-3, 600, 30, 64),), "why")
    decision = Decision(60, "hit@5", {"a": 0.5}, ("a",), (), "why")
    append_race(path, start)
    path.write_bytes(path.read_bytes() + b'{"kind": "rung", "st')
    assert read_race(path) == [start]
    append_race(path, decision)
    append_race(path, Horizon("a", 500, 12.5, 0.1, "why"))
    assert read_race(path) == [start, decision, Horizon("a", 500, 12.5, 0.1, "why")]
    path.write_text('{"kind": "bet"}\n')
    with pytest.raises(InputError, match=r"race\.jsonl, line 1: no record of a race"):
        read_race(path)


@pytest.fixture
def sequences(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(race_plan, "FEWEST_STEPS", 2)
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{rng.integers(0, 9) + 10 * (user % 4)},{at}" for user in range(60) for at in range(8)]
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


def result_of(folder):
    results = json.loads((folder / "results.json").read_text())
    run = folder / results["model"]
    kept = json.loads((run / "result.json").read_text())
    for volatile in ("seconds",):
        kept.pop(volatile)
    return {
        "race": [json.loads(line) for line in (folder / "race.jsonl").read_text().splitlines()],
        "chosen": results["model"],
        "result": kept,
        "weights": load_file(run / kept["weights"] / "weights.safetensors"),
    }


def same(one, other):
    return (
        all(one[name] == other[name] for name in ("race", "chosen", "result"))
        and one["weights"].keys() == other["weights"].keys()
        and all(torch.equal(value, other["weights"][name]) for name, value in one["weights"].items())
    )


def replayed(folder, data, to, **options):
    """The same job, undisturbed, with the plan and the decisions of ``folder``."""
    to.mkdir()
    for name in ("job.json", "race.jsonl"):
        shutil.copy(folder / name, to / name)
    nw.run(data, out=to, **options)
    return result_of(to)


def test_a_job_races_learning_rates(sequences, tmp_path):
    said = []
    request = nw.requests.RunRequest(
        data=str(sequences), out=str(tmp_path / "job"), steps=48, batch_size=16, k="online"
    )
    result = main_job.run_job(request, log=said.append)
    start, *decisions = read_race(tmp_path / "job" / "race.jsonl")
    assert [one.learning_rate for one in start.candidates] == [1e-3, 3e-3, 3.33e-4]
    assert decisions[-1].kept == (next(one.name for one in start.candidates if one.folder in result.record.model),)
    assert result.record.decisions == tuple(decisions)
    folders = {one.name: tmp_path / "job" / "runs" / one.folder / "seed-0" for one in start.candidates}
    for name, folder in folders.items():
        assert (folder / "checkpoints").exists() == (name in decisions[-1].kept)
    assert any(line.startswith("A step of bert4rec on cpu takes") for line in said)
    assert result.record.arms[0].done[0].steps == 48


@pytest.mark.parametrize("options", [{"race": False}, {"learning_rate": 1e-3, "k": "4"}])
def test_without_a_race_one_candidate_trains(sequences, tmp_path, options):
    nw.run(sequences, out=tmp_path / "job", steps=6, batch_size=16, **options)
    (start,) = read_race(tmp_path / "job" / "race.jsonl")
    assert len(start.candidates) == 1


def test_a_plan_trains_nothing(sequences, tmp_path):
    options = {"budget": "60s", "batch_size": 16, "k": "online"}  # a typed K is the only one
    request = nw.requests.RunRequest(data=str(sequences), out=str(tmp_path / "job"), **options)
    plan, start = main_job.plan_job(request, log=lambda _: None)
    assert [cost.k for cost in plan.costs][:2] == [1.0, 20.0] and all(cost.seconds > 0 for cost in plan.costs)
    assert len(start.candidates) == 3 and not (tmp_path / "job").exists()


def evaluations(values):
    return RunLog(evals=tuple(EvalRecord(step=10 * at, split="val", auc=one) for at, one in enumerate(values)))


def test_training_ends_where_the_metric_no_longer_rises():
    rising = [0.1 * at for at in range(10)]
    assert not main_job.no_longer_rises(evaluations(rising), "auc")
    assert not main_job.no_longer_rises(evaluations([0.9, *rising[:7]]), "auc")  # too few to tell
    assert main_job.no_longer_rises(evaluations([*rising[:5], *[0.3] * 4]), "auc")  # best at 40 of 80
    assert not main_job.no_longer_rises(evaluations([*rising[:5], *[0.3] * 4]), "auc", least=81)  # it may rise yet
    assert not main_job.no_longer_rises(evaluations([*rising[:6], *[0.3] * 4]), "auc")  # best at 50 of 90


def test_a_schedule_of_k_keeps_the_steps_that_it_began_with():
    def replans(**options):
        return main_job.replans_of(nw.requests.RunRequest(budget="60s", **options), raced=True)

    assert replans() == replans(k="online") == replans(k="20") == (0.0, main_job.REPLAN)
    assert replans(k="ans:20") == replans(k="warm:20") == replans(steps=9) == ()


@pytest.mark.slow
def test_other_seeds_train_what_won(sequences, tmp_path):
    result = nw.run(sequences, out=tmp_path / "job", steps=24, batch_size=16, seeds=2)
    (arm,) = result.record.arms
    assert [(seed.seed, seed.steps, seed.state) for seed in arm.seeds] == [(0, 24, "done"), (1, 24, "done")]
    assert len({seed.run.split("/")[1] for seed in arm.seeds}) == 1


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_a_job_killed_at_any_write_ends_the_same(sequences, tmp_path, monkeypatch):
    """Every checkpoint and every decision is a point at which a kill may come, before it is written or after."""
    options = {"budget": "30s", "batch_size": 16}
    writes = {"left": 10**9, "before": True}

    def dying(usual):
        def write(*parts, **named):
            writes["left"] -= 1
            if writes["left"] == 0 and writes["before"]:
                raise Killed
            found = usual(*parts, **named)
            if writes["left"] == 0:
                raise Killed
            return found

        return write

    monkeypatch.setattr(checkpoint, "write", dying(checkpoint.write))
    monkeypatch.setattr(race, "append_race", dying(race.append_race))
    folder = tmp_path / "killed"
    kills = 0
    for at in range(1, 60):
        writes.update(left=1 + at % 2, before=bool(at % 3))
        try:
            nw.run(sequences, out=folder, **options)
            break
        except Killed:
            kills += 1
    writes["left"] = 10**9
    nw.run(sequences, out=folder, **options)
    assert kills >= 10
    assert any(isinstance(record, Horizon) for record in read_race(folder / "race.jsonl"))
    assert same(result_of(folder), replayed(folder, sequences, tmp_path / "whole", **options))


@pytest.mark.slow
def test_a_job_killed_with_9_ends_the_same(sequences, tmp_path):
    """In processes of their own; what was decided by the clock is on record, and is not decided again."""
    code = (
        "import negwise as nw, sys; from negwise.jobs import race_plan; race_plan.FEWEST_STEPS = 2; "
        "nw.run(sys.argv[1], out=sys.argv[2], steps=90, batch_size=16)"
    )
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", code, str(sequences), str(folder)]
    rng = np.random.default_rng(5)
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not (folder / "race.jsonl").exists() and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.05)
        time.sleep(float(rng.uniform(0.1, 1.5)))
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, check=True, capture_output=True)
    assert same(result_of(folder), replayed(folder, sequences, tmp_path / "whole", steps=90, batch_size=16))


def test_what_is_nearly_free():
    plan = plan_of((1.0, 0.100), (20.0, 0.104), (100.0, 0.109), (376.0, 0.2))
    assert race_plan.free_in_words(plan) == "K = 100 is nearly free."
    assert race_plan.free_in_words(plan_of((1.0, 0.1), (20.0, 0.2))) == "Each negative costs time."
    assert race_plan.free_in_words(plan_of((1.0, 0.12), (752.0, 0.1))) == "K = 752 is nearly free."


def plan_of(*costs):
    times = StepTimes(0.2, 1.0, 0.1, 2.0, k=costs[-1][0], epoch=100)
    return Plan(RunLengths(0, 1, 200, 100.0, 1), times, 3.0, 1, {}, costs=tuple(StepCost(*one) for one in costs))


def test_rates_leave_before_the_smaller_k(monkeypatch):
    """Where steps are few the lower rate goes, then the higher one, then the smaller K."""
    plan = plan_of((1.0, 0.1), (20.0, 0.11), (100.0, 0.12), (376.0, 0.3))
    prepared = race_plan.PreparedRace(None, 1e-3, ("hit@5",), plan, 10**6, None, None)
    arm = parse_arm("metric", "model")

    def candidates(steps):
        request = nw.requests.RunRequest(data="docs", out="x", steps=steps)
        return [(one.learning_rate, one.max_k) for one in race_plan.plan_candidates(prepared, request, arm).candidates]

    assert candidates(1000) == [(1e-3, None), (3e-3, None), (1e-3, 100)]
    assert candidates(20) == [(1e-3, None)]
    cheap = replace(prepared, plan=plan_of((1.0, 0.1), (376.0, 0.11)))
    request = nw.requests.RunRequest(data="docs", out="x", steps=1000)
    found = race_plan.plan_candidates(cheap, request, arm).candidates
    assert [one.learning_rate for one in found] == [1e-3, 3e-3, 3.33e-4]
    monkeypatch.setattr(race_plan, "share_of_survivor", lambda many: 1.0 if many < 3 else 0.01)
    monkeypatch.setattr(race_plan, "rung_step", lambda one: one.steps // 4)
    monkeypatch.setattr(race_plan, "_candidate", few_steps)
    assert candidates(1000) == [(1e-3, None), (1e-3, 100)]


def few_steps(prepared, request, arm, rate, max_k, times, share):  # noqa: ARG001
    return Candidate(arm.rule, rate, int(share * request.steps), 10, max_k)


def test_a_candidate_that_diverges_is_dropped(sequences, tmp_path, monkeypatch):
    """A learning rate that is far too high ends its own run, not the job."""
    monkeypatch.setattr(race_plan, "RATES", (1.0, 1e38, 1 / 3))
    nw.run(sequences, out=tmp_path / "job", steps=48, batch_size=16, k="4")
    start, *decisions = (one for one in read_race(tmp_path / "job" / "race.jsonl"))
    lost = start.candidates[1].name
    first = decisions[0]
    assert lost in first.dropped and lost not in first.values and f"{lost} failed" in first.reason
    assert nw.load(tmp_path / "job")

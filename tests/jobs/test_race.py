"""The race: who goes on, what it costs, and that a job killed at any point ends with the same winner and weights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from job_world import COMPUTED, LOOK_AT_THE_CLOCK
from safetensors.torch import load_file
from scipy import stats

import negwise as nw
from negwise.errors import InputError
from negwise.jobs import main_job, race, race_plan, step_timing
from negwise.jobs.arms import parse_arm
from negwise.jobs.race import (
    decide,
    invite,
    look,
    rung_step,
    share_of_survivor,
    stages_of,
    steps_between_evaluations,
    with_untried,
)
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
    read_run,
)
from negwise.training import checkpoint
from negwise.training.loop import Run


def ranks(above, candidates=50):
    above = np.asarray(above)
    ones = np.ones(len(above), np.int64)
    return Ranks(above, ones, ones, np.full(len(above), candidates))


def hits(share, queries=400, seed=0):
    """Ranks of which a ``share`` are in the top 5."""
    return ranks(np.where(np.random.default_rng(seed).random(queries) < share, 0, 20))


def test_the_best_goes_on():
    found = decide({"a": hits(0.3), "b": hits(0.6, seed=1), "c": hits(0.1, seed=2)}, 40, "hit@5", "a")
    assert found.kept == ("b",) and found.dropped == ("a", "c")
    assert found.values["b"] == pytest.approx(float(np.mean(hits(0.6, seed=1).above < 5)))


JOINS = (Candidate("metric", 9e-3, 600, 30), Candidate("metric", 3.3e-4, 600, 30))


def test_the_recipe_stays_unless_another_is_clearly_ahead():
    """By SciPy's paired t test at 99%: who goes on at the end, and who is dropped on the way."""
    rng = np.random.default_rng(3)
    seen = set()
    for _ in range(60):
        share = rng.choice([0.3, 0.5, 0.62, 0.7])
        first, other = (hits(one, queries=100, seed=int(rng.integers(1e9))) for one in (0.5, share))
        test = stats.ttest_rel(1.0 * (other.above < 5), 1.0 * (first.above < 5))
        ahead, behind = (bool(test.pvalue < 0.01 and sign * test.statistic > 0) for sign in (1, -1))
        seen.add((ahead, behind))
        both, swapped = {"first": first, "other": other}, {"first": other, "other": first}
        assert decide(both, 9, "hit@5", "first").kept == (("other",) if ahead else ("first",))
        assert look(both, 9, "hit@5", "first").dropped == (("other",) if behind else ())
        assert look(swapped, 9, "hit@5", "first").dropped == (("other",) if ahead else ())
        joined = (JOINS[0].name,) if ahead else ()
        assert invite(both, 9, "hit@5", "first", joins=JOINS).joined == joined
        assert invite({"first": first}, 9, "hit@5", "first", joins=JOINS).joined == ()  # the other broke down
        assert invite({"other": other}, 9, "hit@5", "first", joins=JOINS).joined == (JOINS[1].name,)  # the recipe's did
    assert seen == {(True, False), (False, True), (False, False)}


def test_the_recipe_is_not_dropped_on_the_way():
    found = look({"recipe": hits(0.1), "high": hits(0.8, seed=1), "low": hits(0.1, seed=2)}, 40, "hit@5", "recipe")
    assert found.kept == ("recipe", "high") and found.dropped == ("low",)


def test_a_recipe_that_failed_has_no_privilege():
    """Another may be dropped, and the best goes on without being clearly ahead."""
    ranks = {"high": hits(0.5), "low": hits(0.52, seed=1), "least": hits(0.1, seed=2)}
    assert look(ranks, 40, "hit@5", "recipe").dropped == ("least",)
    values = {name: float(np.mean(one.above < 5)) for name, one in ranks.items()}
    assert decide(ranks, 40, "hit@5", "recipe").kept == (max(values, key=values.get),)
    assert decide(ranks, 40, "hit@5", "high").kept == ("high",)  # were it the recipe's


@pytest.mark.parametrize(("wins", "untried"), [(0, None), (1, None), (2, 0.027), (3, 0.00011)])
def test_a_rate_at_the_edge_that_wins_is_told(wins, untried):
    """0.001, 0.003 and 0.009 raced, or a third of the recipe's as well."""
    rates = (1e-3, 3e-3, 9e-3, 3.33e-4)[: max(wins + 1, 3)]
    tried = [Candidate("metric", rate, 600, 30) for rate in rates]
    found = with_untried(Decision(9, "hit@5", {}, (tried[wins].name,), (), "it goes on"), tried, tried[0])
    assert found.untried == untried
    assert ("was not tried" in found.reason) == (untried is not None)
    several = Decision(9, "hit@5", {}, tuple(one.name for one in tried), (), "all go on")
    assert with_untried(several, tried, tried[0]) == several


@pytest.mark.parametrize("candidates", [1, 2, 3])
def test_the_one_that_goes_on_has_most_of_the_time(candidates):
    """Losers train a quarter of the winner's steps at most; together that is the time of one plain run."""
    share = share_of_survivor(candidates)
    assert share >= race.LEAST_SHARE
    assert share * (1 + race.RUNG * (candidates - 1)) == pytest.approx(1)


@pytest.mark.parametrize("evaluations", range(5, 21))
@pytest.mark.parametrize("candidates", [2, 3])
def test_the_survivor_has_its_share_whatever_the_number_of_evaluations(evaluations, candidates):
    """Steps counted one by one: what is left of a plain run once the others have trained up to the rung."""
    for plain in range(300, 3000, 97):
        steps = int(share_of_survivor(candidates) * plain)
        one = Candidate("metric", 1e-3, steps, steps_between_evaluations(steps, evaluations))
        left = plain - (candidates - 1) * rung_step(one)
        assert left / plain >= race.LEAST_SHARE
        assert rung_step(one) % one.eval_every == 0
        assert 0.18 <= rung_step(one) / steps <= race.RUNG + 1e-9
        assert steps / one.eval_every >= 4


def test_a_rung_is_an_evaluation():
    def steps_of(every, joins=()):
        one = Candidate("online", 1e-3, 600, every)
        return [step_of(one) for step_of, _ in stages_of(RaceStart((one,), "why", joins))]

    assert steps_of(30) == [60, 90, 120] and steps_of(30, JOINS) == [60, 60, 90, 120]
    assert steps_of(120) == [120] and steps_of(120, JOINS) == [120, 120]  # all at the first evaluation
    assert steps_of(600) == [600]


def test_the_record_survives_half_a_line(tmp_path):
    path = tmp_path / "race.jsonl"
    start = RaceStart((Candidate("online", 1e-3, 600, 30, 64),), "why")
    decision = Decision(60, "hit@5", {"a": 0.5}, ("a",), (), "why")
    append_race(path, start)
    path.write_bytes(path.read_bytes() + b'{"kind": "rung", "st')
    assert read_race(path) == [start]
    append_race(path, decision)
    append_race(path, Horizon("a", 500, 12.5, 0.1, "why", 40))
    assert read_race(path) == [start, decision, Horizon("a", 500, 12.5, 0.1, "why", 40)]
    path.write_text('{"kind": "bet"}\n')
    with pytest.raises(InputError, match=r"race\.jsonl, line 1: no record of a race"):
        read_race(path)


@pytest.fixture
def sequences(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(race_plan, "FEWEST_STEPS", 2)
    return write_sequences(tmp_path / "clicks.csv")


def write_sequences(path, users=60):
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{rng.integers(0, 9) + 10 * (user % 4)},{at}" for user in range(users) for at in range(8)]
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
    start, *records = read_race(tmp_path / "job" / "race.jsonl")
    decisions = [one for one in records if isinstance(one, Decision)]
    assert [one.learning_rate for one in start.candidates] == [1e-3, 3e-3]
    assert [one.learning_rate for one in start.joins] == [9e-3, 3.33e-4]
    took_part = [*start.candidates, *(one for one in start.joins if one.name in decisions[0].joined)]
    assert decisions[-1].kept == (next(one.name for one in took_part if one.folder in result.record.model),)
    assert result.record.decisions == tuple(decisions)
    folders = {one.name: tmp_path / "job" / "runs" / one.folder / "seed-0" for one in took_part}
    assert sorted((tmp_path / "job" / "runs").iterdir()) == sorted(folder.parent for folder in folders.values())
    for name, folder in folders.items():
        assert (folder / "checkpoints").exists() == (name in decisions[-1].kept)
    (kept,) = (folder / "checkpoints" for name, folder in folders.items() if name in decisions[-1].kept)
    (best,) = kept.iterdir()  # with its optimiser, for those who go on from there
    assert (best / "optimizer.safetensors").exists() and nw.load(tmp_path / "job")
    assert any(line.startswith("A step of bert4rec on cpu takes") for line in said)
    end = result.record.end  # the metric of 60 queries may be level early, which depends on the machine's last bits
    assert result.record.arms[0].done[0].steps == (48 if end is None else end.step) > 33


@pytest.mark.parametrize("options", [{"race": False}, {"learning_rate": 1e-3, "k": "4"}])
def test_without_a_race_one_candidate_trains(sequences, tmp_path, options):
    nw.run(sequences, out=tmp_path / "job", steps=6, batch_size=16, **options)
    (start,) = read_race(tmp_path / "job" / "race.jsonl")
    assert len(start.candidates) == 1


def test_a_plan_trains_nothing(sequences, tmp_path):
    options = {"budget": "10m", "batch_size": 16, "k": "online"}  # a typed K is the only one
    request = nw.requests.RunRequest(data=str(sequences), out=str(tmp_path / "job"), **options)
    plan, start = main_job.plan_job(request, log=lambda _: None)
    assert [cost.k for cost in plan.costs][:2] == [1.0, 20.0] and all(cost.seconds > 0 for cost in plan.costs)
    assert len(start.candidates) == len(start.joins) == 2 and not (tmp_path / "job").exists()
    assert plan.costs[-1].k == 33  # all that a row can have: 40 items less 7 of the user's other ones


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
    for module in LOOK_AT_THE_CLOCK:
        monkeypatch.setattr(module, "time", COMPUTED)
    options = {"budget": "8s", "batch_size": 16}
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


@pytest.fixture
def job_server():
    """``start(data, out, **options)`` begins a job in a process of its own: its id, and how to wait for its end."""
    command = [sys.executable, str(Path(__file__).parent / "job_server.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:

        def start(data, out, **options):
            print(json.dumps({"data": str(data), "out": str(out), "options": options}), file=server.stdin, flush=True)
            return int(server.stdout.readline()), lambda: int(server.stdout.readline())

        yield start
        server.stdin.close()


def written(folder):
    """Bytes of the records that grow while a job works."""
    return sum(
        log.stat().st_size for log in (folder / "race.jsonl", *folder.glob("runs/*/*/run.jsonl")) if log.exists()
    )


def saved(folder):
    """The checkpoints after the first step."""
    return sorted(one for one in folder.glob("runs/*/*/checkpoints/*") if one.name.isdecimal() and one.name != "0")


@pytest.mark.slow
def test_a_job_killed_with_9_ends_the_same(tmp_path, monkeypatch, job_server):
    """Ten times, wherever it is; what was decided by the clock is on record, and is not decided again.

    The clock of the jobs is the time that they compute: see job_world.py.
    """
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    data, options = write_sequences(tmp_path / "clicks.csv", users=400), {"budget": "10s", "batch_size": 16}
    folder, other, rng = tmp_path / "killed", tmp_path / "whole", np.random.default_rng(5)
    for at in range(10):
        seen = saved if at % 4 == 1 else written  # now and then a job may come further than where it began
        before = seen(folder)
        job, end = job_server(data, folder, **options)
        while seen(folder) == before:
            os.kill(job, 0)  # it lives
            time.sleep(0.005)
        time.sleep(float(rng.uniform(0.0, 0.3)))
        os.kill(job, signal.SIGKILL)
        assert end() == -signal.SIGKILL  # it was at work, and nothing else ended it
    assert job_server(data, folder, **options)[1]() == 0
    other.mkdir()
    for name in ("job.json", "race.jsonl"):
        shutil.copy(folder / name, other / name)
    assert job_server(data, other, **options)[1]() == 0
    records = read_race(folder / "race.jsonl")
    assert {RaceStart, Decision, Horizon} <= {type(record) for record in records}
    resumed = [event for log in folder.glob("runs/*/*/run.jsonl") for event in read_run(log).events]
    assert (
        sum(event.event == "resume" and event.step > 0 for event in resumed) >= 3
    )  # what was trained was gone on from
    assert same(result_of(folder), result_of(other))
    assert whole_results(folder) == whole_results(other)


def whole_results(folder):
    """``results.json`` without what the clock measured while the job ran."""

    def without_times(value):
        if isinstance(value, dict):
            return {name: without_times(part) for name, part in value.items() if not name.startswith("seconds")}
        return [without_times(part) for part in value] if isinstance(value, list) else value

    return without_times(json.loads((folder / "results.json").read_text()))


def test_what_is_nearly_free():
    plan = plan_of((1.0, 0.100), (20.0, 0.104), (100.0, 0.109), (376.0, 0.2))
    assert step_timing.free_in_words(plan) == "Negatives are nearly free up to K = 100."
    assert step_timing.free_in_words(plan_of((1.0, 0.1), (20.0, 0.2))) == "Each negative costs time."
    largest = "Negatives are nearly free up to K = 1,752, the largest that was timed."
    assert step_timing.free_in_words(plan_of((1.0, 0.12), (1752.0, 0.1))) == largest


def plan_of(*costs):
    times = StepTimes(0.2, 1.0, 0.1, 2.0, k=costs[-1][0], epoch=100)
    return Plan(RunLengths(0, 1, 200, 100.0, 1), times, 3.0, 1, {}, costs=tuple(StepCost(*one) for one in costs))


def test_who_races(monkeypatch):
    """At ten steps a second with K = 100 and five with K = 376, an epoch of 100 steps takes 20 seconds."""
    monkeypatch.setattr(race_plan, "time_for_training", lambda *known: float(known[-1].budget[:-1]))
    plan = plan_of((1.0, 0.1), (20.0, 0.1), (100.0, 0.1), (376.0, 0.2))
    prepared = race_plan.PreparedRace(None, 1e-3, ("hit@5",), plan, 10**6, None, None)

    def raced(**options):
        request = nw.requests.RunRequest(data="docs", out="x", **options)
        start = race_plan.plan_candidates(prepared, request, parse_arm("metric", "model"))
        return [(one.learning_rate, one.max_k) for one in start.candidates], len(start.joins), start.reason

    assert raced(budget="100s")[:2] == ([(1e-3, None), (3e-3, None)], 2)
    few = raced(budget="30s")  # more than an epoch, and too few steps for a race
    assert few[:2] == ([(1e-3, None)], 0) and "too few steps" in few[2] and "K is" not in few[2]
    short = raced(budget="18s")
    assert short[:2] == ([(1e-3, 100)], 0)
    assert "K is at most 100: more make a step 2.0 x as long, and there is less than an epoch." in short[2]
    assert raced(budget="18s", k="376")[0] == [(1e-3, None)]  # as was asked
    assert raced(steps=20)[0] == [(1e-3, None)]
    assert raced(budget="100s", learning_rate=1e-3)[:2] == ([(1e-3, None)], 0)
    assert raced(budget="100s", race=False)[2] == "There is nothing to race."


def test_a_candidate_that_diverges_is_dropped(sequences, tmp_path, monkeypatch):
    """A learning rate that is far too high ends its own run, not the job."""
    monkeypatch.setattr(race_plan, "RATE_STEP", 1e38)
    nw.run(sequences, out=tmp_path / "job", steps=48, batch_size=16, k="4")
    start, *decisions = (one for one in read_race(tmp_path / "job" / "race.jsonl"))
    lost = start.candidates[1].name
    first = decisions[0]
    assert lost in first.dropped and lost not in first.values and f"{lost} failed: training broke down" in first.reason
    assert not first.joined
    assert nw.load(tmp_path / "job")


def breaking(fails):
    """`Run.update_weights`, which raises what ``fails(learning_rate)`` returns."""
    usual = Run.update_weights

    def update_weights(self, inputs):
        error = fails(self.optimization.rates[0]) if self.checkpoints else None  # not while steps are timed
        if error is not None:
            raise error
        return usual(self, inputs)

    return update_weights


def test_a_recipe_that_diverges_is_dropped_too(sequences, tmp_path, monkeypatch):
    broken = InputError("the loss of row 0 is not finite")
    monkeypatch.setattr(Run, "update_weights", breaking(lambda rate: broken if rate < 2e-3 else None))
    result = nw.run(sequences, out=tmp_path / "job", steps=48, batch_size=16, k="4")
    _, first, *_ = read_race(tmp_path / "job" / "race.jsonl")
    assert "learning rate 0.001" in first.dropped[0] and "not finite" in first.reason
    assert result.record.arms[0].learning_rate == 3e-3
    assert result.record.decisions[-1].untried == 9e-3  # the lower ones broke down, a higher one was not tried
    assert "A higher one was not tried: --learning-rate 0.009." in result.record.caveats[0]


def test_where_all_diverge_the_error_says_what_to_type(sequences, tmp_path, monkeypatch):
    broken = InputError("the loss of row 0 is not finite")
    monkeypatch.setattr(Run, "update_weights", breaking(lambda _: broken))
    with pytest.raises(InputError, match=r"no candidate could be trained.*--learning-rate 0\.00033"):
        nw.run(sequences, out=tmp_path / "race", steps=48, batch_size=16, k="4")
    with pytest.raises(InputError, match=r"training broke down.*--learning-rate 0\.0033"):
        nw.run(sequences, out=tmp_path / "alone", steps=6, batch_size=16, k="4", learning_rate=1e-2)


def test_a_candidate_that_does_not_fit_beside_the_others_is_dropped(sequences, tmp_path, monkeypatch):
    full = torch.OutOfMemoryError("CUDA out of memory")
    monkeypatch.setattr(Run, "update_weights", breaking(lambda rate: full if rate == 3e-3 else None))
    nw.run(sequences, out=tmp_path / "job", steps=48, batch_size=16, k="4")
    _, first, *_ = read_race(tmp_path / "job" / "race.jsonl")
    assert "0.003" in first.dropped[0] and "does not fit into memory beside the others" in first.reason
    monkeypatch.undo()
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(race_plan, "FEWEST_STEPS", 2)
    monkeypatch.setattr(Run, "update_weights", breaking(lambda rate: ValueError("a bug") if rate == 3e-3 else None))
    with pytest.raises(ValueError, match="a bug"):  # nothing else is taken for a failure of the candidate
        nw.run(sequences, out=tmp_path / "other", steps=48, batch_size=16, k="4")

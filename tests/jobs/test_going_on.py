"""A job that gets more time, and one that starts from an older model's weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import negwise as nw
from negwise.errors import InputError
from negwise.inference.model_folder import find_model
from negwise.jobs import going_on, main_job, race_plan
from negwise.records import JOB, JobRecord, read_record, read_run
from negwise.requests import RunRequest

TINY = {"steps": 6, "batch_size": 16, "k": "4", "learning_rate": 1e-2}


def write_clicks(path, users, items):
    """Interactions of ``users`` with ``items`` items, ids as texts."""
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{rng.integers(0, items)},{at}" for user in range(users) for at in range(8)]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    return write_clicks(tmp_path / "clicks.csv", 60, 40)


def validation(folder, metric="ndcg@10"):
    return {record.step: record.value(metric) for record in read_run(folder).of_split("val")}


def test_a_larger_budget_goes_on_from_the_winner(clicks, tmp_path):
    out = tmp_path / "job"
    first = nw.run(clicks, out=out, budget="5m", **TINY)
    weights = find_model(out).weights()
    second = nw.run(clicks, out=out, budget="6m", **TINY)
    job = read_record(JobRecord, out / JOB)
    assert job.request["budget"] == "6m" and job.plan.start.goes_on
    assert all(torch.equal(value, weights[name]) for name, value in find_model(out / "before-1").weights().items())
    best = max(validation(out / "before-1" / first.record.model).values())
    run = out / second.record.model
    assert validation(run)[0] == pytest.approx(best, abs=1e-6)  # it starts with the weights that were kept
    assert max(validation(run).values()) >= best - 1e-6
    assert second.record.seconds > first.record.seconds

    again = nw.run(clicks, out=out, budget="6m", **TINY)  # resumes what is done
    assert again.record == second.record and not (out / "before-2").exists()
    nw.run(clicks, out=out, budget="7m", **TINY)
    assert (out / "before-2" / JOB).exists() and (out / "before-1" / JOB).exists()
    assert nw.load(out).recommend(users=["u1"], n=3)


def test_less_time_or_another_request_does_not_go_on(clicks, tmp_path):
    out = tmp_path / "job"
    nw.run(clicks, out=out, budget="5m", **TINY)
    for changed in ({"budget": "4m"}, {"budget": "6m", "seed": 1}):
        with pytest.raises(InputError, match="the request changed since"):
            nw.run(clicks, out=out, **{**TINY, **changed})
    write_clicks(clicks, 61, 40)
    with pytest.raises(InputError, match=r"the data changed since.*--from"):
        nw.run(clicks, out=out, budget="6m", **TINY)
    assert not list(out.glob("before-*"))


class Killed(BaseException):
    """As if the process had been killed."""


@pytest.mark.parametrize("moves", [0, 1, 3, 6])
@pytest.mark.parametrize("then", ["5m", "6m"])
def test_a_kill_while_a_job_is_put_aside(clicks, tmp_path, monkeypatch, moves, then):
    """Nothing is lost: the job goes on, or is as it was where the first budget is asked for again."""
    out = tmp_path / "job"
    first = nw.run(clicks, out=out, budget="5m", **TINY)
    own = out / "notes.txt"
    own.write_text("mine")
    whole = files_of(out)
    moved = []

    def killed(source, target):
        if len(moved) == moves:
            raise Killed
        moved.append(source)
        source.rename(target)

    with monkeypatch.context() as patch:
        patch.setattr(going_on.shutil, "move", killed)
        patch.setattr(race_plan, "write_job", killed_there)
        with pytest.raises(Killed):
            nw.run(clicks, out=out, budget="6m", **TINY)
    again = nw.run(clicks, out=out, budget=then, **TINY)
    assert own.read_text() == "mine" and not list(out.glob("*.moving"))
    if then == "6m":
        assert files_of(out / "before-1") == whole - {own.relative_to(out)}
        assert again.record.seconds > first.record.seconds
    else:
        assert files_of(out) == whole and again.record == first.record


def killed_there(*_):
    raise Killed


def files_of(folder):
    return {one.relative_to(folder) for one in folder.rglob("*") if one.name != ".lock"}


def test_a_budget_that_is_still_too_short_leaves_the_job_alone(clicks, tmp_path, monkeypatch):
    out = tmp_path / "job"
    options = {name: value for name, value in TINY.items() if name != "steps"}
    monkeypatch.setattr(race_plan, "time_for_training", lambda *_: 30.0)
    nw.run(clicks, out=out, budget="5m", **{**options, "steps": 6})
    monkeypatch.setattr(race_plan, "start_of", killed_there)  # not asked: the folder has the job
    whole = files_of(out)
    with monkeypatch.context() as patch:
        patch.setattr(race_plan, "_new_plan", too_short)
        with pytest.raises(InputError, match="too short"):
            nw.run(clicks, out=out, budget="6m", **{**options, "steps": 6})
    assert files_of(out) == whole and nw.load(out)


def too_short(*_):
    raise InputError("budget: too short.")


def test_a_plan_for_more_time_moves_nothing(clicks, tmp_path):
    out = tmp_path / "job"
    nw.run(clicks, out=out, budget="5m", **TINY)
    whole = files_of(out)
    plan, start = main_job.plan_job(RunRequest(data=str(clicks), out=str(out), budget="6m", **TINY), log=print)
    assert plan.start.goes_on and len(start.candidates) == 1
    assert files_of(out) == whole


def test_other_seeds_and_other_k_do_not_count_as_spent(clicks, tmp_path):
    out = tmp_path / "job"
    first = nw.run(clicks, out=out, budget="5m", seeds=2, compare=("1",), **TINY)
    nw.run(clicks, out=out, budget="6m", seeds=2, compare=("1",), **TINY)
    start = read_record(JobRecord, out / JOB).plan.start
    assert 0 < start.seconds < first.record.seconds
    again = nw.run(clicks, out=out, budget="6m", seeds=2, compare=("1",), **TINY)
    assert "All seeds start from the same weights" in " ".join(again.record.caveats)


def test_a_model_of_before_starts_a_job_on_newer_data(clicks, tmp_path):
    nw.run(clicks, out=tmp_path / "old", **TINY)
    newer = write_clicks(tmp_path / "newer.csv", 90, 55)
    result = nw.run(newer, out=tmp_path / "new", start=str(tmp_path / "old"), **TINY)
    assert "the scores are too high" in result.record.caveats[0]
    third = nw.run(newer, out=tmp_path / "third", start=str(tmp_path / "new"), **TINY)  # and so on
    assert "the scores are too high" in third.record.caveats[0]
    random = nw.run(newer, out=tmp_path / "random", **TINY)
    assert (
        validation(tmp_path / "new" / result.record.model)[0]
        != validation(tmp_path / "random" / random.record.model)[0]
    )
    assert nw.load(tmp_path / "new").recommend(users=["u89"], n=3)  # a user who was not there before
    with pytest.raises(InputError, match=r"model: got 'nrms', but .* has a bert4rec"):
        nw.run(newer, out=tmp_path / "other", start=str(tmp_path / "old"), model="nrms", **TINY)
    with pytest.raises(InputError, match="not there, expected the folder of a job"):
        nw.run(newer, out=tmp_path / "other", start=str(tmp_path / "nowhere"), **TINY)


def test_weights_that_changed_since_are_refused(clicks, tmp_path):
    nw.run(clicks, out=tmp_path / "old", **TINY)
    nw.run(clicks, out=tmp_path / "other", seed=1, **TINY)
    options = {**TINY, "start": str(tmp_path / "old")}
    nw.run(clicks, out=tmp_path / "new", **options)
    (tmp_path / "old").rename(tmp_path / "gone")
    (tmp_path / "other").rename(tmp_path / "old")
    with pytest.raises(InputError, match="its weights changed since this job began with them"):
        nw.run(clicks, out=tmp_path / "new", **options)

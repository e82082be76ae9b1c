"""A job that gets more time, and one that starts from an older model's weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import negwise as nw
from negwise.errors import InputError
from negwise.inference.model_folder import find_model
from negwise.jobs import going_on
from negwise.records import JOB, JobRecord, read_record, read_run

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


def test_a_kill_while_a_job_is_put_aside(clicks, tmp_path, monkeypatch):
    out = tmp_path / "job"
    nw.run(clicks, out=out, budget="5m", **TINY)
    whole = {one.relative_to(out) for one in out.rglob("*") if one.name != ".lock"}
    moved = []

    def killed(source, target):
        if len(moved) == 2:
            raise KeyboardInterrupt
        moved.append(source)
        source.rename(target)

    with monkeypatch.context() as patch:
        patch.setattr(going_on.shutil, "move", killed)
        with pytest.raises(KeyboardInterrupt):
            nw.run(clicks, out=out, budget="6m", **TINY)
    assert (out / JOB).exists() and (out / "before-1.moving").exists()
    nw.run(clicks, out=out, budget="6m", **TINY)
    kept = {one.relative_to(out / "before-1") for one in (out / "before-1").rglob("*") if one.name != ".lock"}
    assert kept == whole and not list(out.glob("*.moving"))


def test_a_model_of_before_starts_a_job_on_newer_data(clicks, tmp_path):
    nw.run(clicks, out=tmp_path / "old", **TINY)
    newer = write_clicks(tmp_path / "newer.csv", 90, 55)
    result = nw.run(newer, out=tmp_path / "new", start=str(tmp_path / "old"), **TINY)
    assert "the scores flatter" in result.record.caveats[0]
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

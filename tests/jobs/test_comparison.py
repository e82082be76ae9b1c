"""Other K beside the model, for the same time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import negwise as nw
from negwise.errors import InputError
from negwise.jobs import comparison
from negwise.records import Baseline, Comparison, QueryDifference, Scores, StepCost, read_race, read_result
from negwise.report.from_job import job_report_data
from negwise.report.score_table import comparison_notice, score_table, strongest

TINY = {"steps": 6, "batch_size": 16, "k": "4", "learning_rate": 1e-2}


@pytest.fixture
def clicks(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    rows = [f"u{user},i{rng.integers(0, 40)},{at}" for user in range(60) for at in range(8)]
    path = tmp_path / "clicks.csv"
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    return path


def test_each_k_has_the_steps_that_the_same_time_buys(clicks, tmp_path, monkeypatch):
    seconds = {4.0: 0.2, 1.0: 0.1, 20.0: 0.4}
    monkeypatch.setattr(comparison, "step_costs", lambda _, __, ks: [StepCost(k, seconds[k]) for k in ks])
    out = tmp_path / "job"
    result = nw.run(clicks, out=out, compare=("1", "20"), **TINY)
    found = [one for one in read_race(out / "race.jsonl") if isinstance(one, Comparison)]
    assert [(one.rule, one.steps) for one in found] == [("1", 12), ("20", 3)]
    for one in found:
        assert read_result(out / "runs" / f"compare-{one.rule}" / "seed-0").steps == one.steps
    assert result.k == 4  # the model is the one that was asked for
    names = [(one.name, one.trained) for one in result.record.baselines]
    assert names == [("most popular", False), ("K = 1, same time", True), ("K = 20, same time", True)]
    monkeypatch.setattr(comparison, "step_costs", None)  # nothing is timed again
    assert nw.run(clicks, out=out, compare=("1", "20"), **TINY).record == result.record


def test_nothing_to_compare(clicks, tmp_path):
    result = nw.run(clicks, out=tmp_path / "job", compare=("none",), **TINY)
    assert [one.name for one in result.record.baselines] == ["most popular"]


def test_paired_with_the_model_by_query(clicks, tmp_path):
    """The same K for the same time is the same model: every difference is 0."""
    result = nw.run(clicks, out=tmp_path / "job", compare=("4",), **TINY)
    same = next(one for one in result.record.baselines if one.trained)
    steps = read_result(tmp_path / "job" / "runs" / "compare-4" / "seed-0").steps
    if steps == TINY["steps"]:  # timed, so that it may be a step more or less
        assert all(gap.mean == 0 for gap in same.differences)
    assert {gap.queries for gap in same.differences} == {same.scores.queries}


def test_a_k_that_is_better_is_told(clicks, tmp_path):
    nw.run(clicks, out=tmp_path / "job", compare=("1",), **TINY)
    report = job_report_data(tmp_path / "job")
    other = next(one for one in report.baselines if one.trained)
    assert strongest(report)[0].name == "most popular"  # the headline is about what needs no training
    assert any(row[0] == "K = 1, same time" for row in score_table(report, report.chosen_arm.done[0]).rows)
    for low, high, told in ((-0.3, -0.1, True), (-0.3, 0.1, False), (0.1, 0.3, False)):
        gap = QueryDifference("ndcg@10", (low + high) / 2, 0.05, low, high, 58)
        known = replace(report, baselines=(replace(other, differences=(gap,)),))
        text = comparison_notice(known)
        assert (text is not None) == told
    assert text is None and comparison_notice(replace(report, baselines=())) is None
    gap = QueryDifference("ndcg@10", -0.2, 0.05, -0.3, -0.1, 58)
    better = Baseline("K = 1, same time", Scores(0.5), (gap,), trained=True)
    text = comparison_notice(replace(report, baselines=(better,)))
    assert "nDCG@10 +0.2000 (95% interval +0.1000 to +0.3000, 58 queries). To train with it, type --k 1, and" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"compare": ("9999",)}, "9999"),
        ({"compare": ("many",)}, "cannot read K from 'many'"),
        ({"compare": ("online",), "negatives": "hardest:20"}, "k: got online, but hardest"),
        ({"compare": ("1",), "method": "paper", "k": None}, "--compare none"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_training(clicks, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        nw.run(clicks, out=tmp_path / "job", **{**TINY, **options})
    assert not (tmp_path / "job" / "job.json").exists()  # so that the next try is free

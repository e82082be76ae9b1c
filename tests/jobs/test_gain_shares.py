"""Shares of the gain and seconds of a step at a few K."""

import json
from dataclasses import replace

import pytest

import negwise as nw
from negwise.jobs.answer_facts import REST, seconds_by_use, whole_seconds
from negwise.jobs.gain_shares import measured_costs, seconds_at, shares_of
from negwise.records import (
    ArmResult,
    Baseline,
    Plan,
    Results,
    RunLengths,
    Scores,
    SeedResult,
    Start,
    StepCost,
    StepTimes,
    decode,
    encode,
)

COSTS = (StepCost(1, 0.1), StepCost(101, 0.2), StepCost(301, 0.8))


def test_shares_are_those_of_the_forecast():
    found = shares_of("ndcg@10", 3416, COSTS, most=3415)
    assert [row.k for row in found] == [1, 4, 20, 100, 300, 301, 1000, 3415]
    assert [row.all for row in found] == [False] * 7 + [True]
    assert (found[0].share, found[0].low, found[0].high) == (0.0, 0.0, 0.0)
    for row in found[1:]:
        theirs = nw.share_of_gain(row.k, metric="ndcg@10", candidates=3416)
        assert (row.share, row.low, row.high) == (theirs.share, theirs.low, theirs.high)
    assert [row.seconds for row in found] == pytest.approx([0.1, 0.103, 0.119, 0.199, 0.797, 0.8, None, None])
    assert [row.k for row in found if row.interpolated] == [4, 20, 100, 300]  # timed: 1, 301; neither: 1000, 3415


def test_the_k_of_the_model_has_a_row_of_its_own():
    found = shares_of("hit@5", 200, COSTS, most=199, own=64.0)
    assert [(row.k, row.own) for row in found] == [(1, 0), (4, 0), (20, 0), (64, 1), (100, 0), (199, 0)]
    theirs = nw.share_of_gain(64, metric="hit@5", candidates=200)
    assert (found[3].share, found[3].seconds) == (theirs.share, pytest.approx(0.163))
    assert [(row.k, row.own, row.all) for row in shares_of("hit@5", 48, (), most=47, own=47.0)][-1] == (47, True, True)
    near = shares_of("ndcg@10", 455, (StepCost(1, 0.1), StepCost(100.2, 0.2)), most=454, own=100.2)
    assert [row.k for row in near] == [1, 4, 20, 100.2, 300, 454]  # not 100 as well
    assert [(row.seconds, row.interpolated) for row in near if row.own] == [(0.2, False)]


@pytest.mark.parametrize(("metric", "candidates"), [("ndcg@10", 37), ("ndcg@10", None), ("auc", 3416), ("hit@50", 99)])
def test_a_share_that_was_never_measured_is_not_known(metric, candidates):
    found = shares_of(metric, candidates, COSTS, most=36)
    assert [row.k for row in found] == [1, 4, 20, 36]
    assert all(row.share is row.low is row.high is None for row in found)
    assert all(row.seconds is not None for row in found)


def test_auc_has_shares_with_an_estimate():
    estimate = nw.optimal_k(train_auc=0.9552)
    found = shares_of("auc", 3416, (), most=1000, estimate=estimate)
    assert found[2].share == nw.share_of_gain(20, estimate=estimate).share
    assert all(row.seconds is None for row in found)


def test_seconds_are_linear_between_measured_k():
    assert seconds_at(51, COSTS[::-1]) == pytest.approx(0.15)
    assert seconds_at(0.5, COSTS) is seconds_at(302, COSTS) is seconds_at(5, ()) is None


def plan_of(costs=()):
    times = StepTimes(0.9, 1.0, 0.5, 2.0, k=376.0, epoch=117)
    return Plan(RunLengths(0, 1, 200, 100.0, 1), times, 3.0, 1, {}, costs=costs)


def test_a_plan_without_costs_has_its_two_timed_steps():
    assert measured_costs(plan_of()) == (StepCost(1.0, 0.5), StepCost(376.0, 0.9))
    assert measured_costs(plan_of(COSTS)) == COSTS


def test_records_survive_json():
    plan = plan_of(COSTS)
    assert decode(Plan, json.loads(json.dumps(encode(plan))), "plan") == plan
    record = Results("run", (), ("hit@5",), shares=shares_of("hit@5", 500, COSTS, most=99), seconds=4.0)
    assert decode(Results, json.loads(json.dumps(encode(record))), "results") == record


def test_the_whole_cost_counts_what_was_done_before_a_resume():
    plan = replace(plan_of(), spent=12.0)
    assert whole_seconds(None, plan, 110.0, 130.0) == 130.0  # one call did it all
    assert whole_seconds(None, plan, 110.0, 20.0) == 122.0  # the last call did the rest
    assert whole_seconds(140.0, plan, 110.0, 2.0) == 140.0  # nothing was left
    goes_on = replace(plan, start=Start("before-1", "", 60.0, goes_on=True))
    assert whole_seconds(None, goes_on, 110.0, 130.0) == 190.0  # and what came before
    assert whole_seconds(190.0, goes_on, 110.0, 2.0) == 190.0


def test_the_parts_of_the_cost_are_named_and_add_up(tmp_path):
    """Two seeds of the model, a candidate that the race dropped, and a K that was compared."""
    spent = {"online/seed-0": 30.0, "online/seed-1": 20.0, "online-lr-3/seed-0": 8.0, "compare-1/seed-0": 25.0}
    for run, seconds in spent.items():
        folder = tmp_path / "runs" / run
        folder.mkdir(parents=True)
        (folder / "run.jsonl").write_text(json.dumps({"kind": "step", "step": 5, "time": seconds}) + "\n")
    seeds = tuple(SeedResult(n, f"runs/online/seed-{n}", "done", seconds=30.0 - 10 * n) for n in range(2))
    arm = ArmResult("online", "online", 100.0, "model", False, 1e-3, (), seeds)
    other = Baseline("K = 1, same time", Scores(0.5), (), trained=True, k=1.0, seconds=25.0)
    record = Results("run", (arm,), ("hit@5",), baselines=(Baseline("BM25", Scores(0.5), ()), other))
    plan = replace(plan_of(), spent=12.0, start=Start("before-1", "", 60.0, goes_on=True))
    found = seconds_by_use(170.0, record, tmp_path, plan)
    assert found == {
        "in earlier rounds": 60.0,
        "loading, reading and timing": 12.0,
        "training the model": 50.0,
        "training the race's other candidates": 8.0,
        "training other K to compare": 25.0,
        REST: 15.0,
    }
    alone = replace(record, baselines=())
    assert "training other K to compare" not in seconds_by_use(170.0, alone, tmp_path, plan_of())

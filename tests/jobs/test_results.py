"""Means and differences over seeds, against SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from negwise.jobs.results import _difference, _learnt_less, caveats_of, mean_over_seeds, score_of
from negwise.records import ArmResult, PilotResult, Results, Scores, SeedResult, TunedRate
from negwise.theory.optimal_k import optimal_k


def arm_of(name, values, **more):
    seeds = tuple(
        SeedResult(seed, "run", "failed")
        if value is None
        else SeedResult(seed, "run", "done", test=Scores(value, metrics={"hit@5": value / 2}))
        for seed, value in enumerate(values)
    )
    whole = {"k": None, "role": None, "uses_pilot": False, "learning_rate": 1e-3, "tuning": (), **more}
    return ArmResult(name=name, rule=name, seeds=seeds, **whole)


def results(*arms, **more):
    return Results(kind="run", arms=arms, metrics=("auc", "hit@5"), **more)


def test_differences_are_paired_by_seed():
    ours, theirs = [0.91, 0.93, 0.90, 0.95], [0.90, 0.91, 0.89, 0.92]
    found = _difference(arm_of("20", ours), arm_of("1", theirs), "auc")
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(np.subtract(ours, theirs)))
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.se == pytest.approx(stats.sem(np.subtract(ours, theirs)))
    assert _difference(arm_of("20", ours), arm_of("1", theirs), "hit@5").mean == pytest.approx(found.mean / 2)


def test_a_seed_that_failed_on_either_side_is_left_out():
    found = _difference(arm_of("20", [0.9, None, 0.8]), arm_of("1", [0.7, 0.6, None]), "auc")
    assert (found.seeds, found.mean, found.se) == (1, pytest.approx(0.2), None)
    assert _difference(arm_of("20", [None]), arm_of("1", [0.5]), "auc").mean is None


def test_means_over_seeds():
    mean, error, seeds = mean_over_seeds(arm_of("4", [0.8, None, 0.9]), "auc")
    assert (mean, seeds) == (pytest.approx(0.85), 2)
    assert error == pytest.approx(stats.sem([0.8, 0.9]))
    assert mean_over_seeds(arm_of("4", [0.8]), "auc") == (0.8, None, 1)
    assert mean_over_seeds(arm_of("4", [None]), "auc") == (None, None, 0)
    assert score_of(arm_of("4", [0.8]).seeds[0], "auc", "val") is None


def test_caveats_that_apply():
    said = " ".join(caveats_of(results(arm_of("1", [0.8, None]), arm_of("4", [0.8, 0.7])), None))
    assert "Failed: 1 seed 1" in said
    assert "2 seeds" in said
    assert not any("0 seeds" in caveat for caveat in caveats_of(results(arm_of("1", [None])), None))


@pytest.mark.parametrize(("reached", "pilot", "told"), [(1.0, 1.0, 0), (0.8, 1.0, 0), (1.0, 0.8, 1), (0.9, 0.8, 1)])
def test_a_perfect_auc_is_compared_with_the_pilots_too(reached, pilot, told):
    """Their separations are 1.19 and 1.81; 1 has none that is finite."""
    arm = arm_of("1", [0.8])
    arm = replace(arm, seeds=(replace(arm.seeds[0], val=Scores(reached)),))
    found = _learnt_less(results(arm, pilot=PilotResult("pilot", val_auc=pilot)))
    assert sum("had learnt less" in caveat for caveat in found) == told


@pytest.mark.parametrize(
    ("chosen", "aucs", "said"),
    [
        (1e-3, (None, None, None), True),
        (1e-3, (0.9, 0.9, 0.9), False),  # all the same: nothing speaks for a wider choice
        (1e-3, (0.8, 0.9, 0.9), True),
        (3e-4, (0.8, 0.9, 0.9), False),
    ],
)
def test_a_rate_at_the_edge_of_what_was_tried_is_told(chosen, aucs, said):
    tried = tuple(TunedRate(rate, "run", "done", auc) for rate, auc in zip((1e-4, 3e-4, 1e-3), aucs, strict=True))
    found = caveats_of(results(arm_of("4", [0.8], tuning=tried, learning_rate=chosen)), None)
    assert any("smallest or largest" in caveat for caveat in found) == said


def test_weights_that_training_did_not_change_are_told():
    arms = [
        replace(arm, seeds=tuple(replace(seed, best_step=step) for seed, step in zip(arm.seeds, steps, strict=True)))
        for arm, steps in ((arm_of("1", [0.8, 0.8]), (0, 40)), (arm_of("4", [0.8, 0.8]), (0, 0)))
    ]
    said = " ".join(caveats_of(results(*arms), None))
    assert "validation score of 4: the weights kept" in said


@pytest.mark.parametrize(
    ("k", "role", "verdict", "said"),
    [
        ("100", "extra", "ok", True),
        ("100", "extra", "vacuous", False),
        ("25", "extra", "ok", False),
        ("100", "schedule", "ok", False),
    ],
)
def test_a_best_k_that_the_estimate_did_not_see_is_told(k, role, verdict, said):
    estimate = replace(optimal_k(train_auc=0.9552), verdict=verdict)
    assert estimate.as_good(25) and not estimate.as_good(100) and not estimate.as_good(2)
    arms = [arm_of("1", [0.8], role="K=1", k=1.0), arm_of(k, [0.9], role=role, k=float(k))]
    found = results(*arms, chosen=k, pilot=PilotResult("pilot", val_auc=0.8))
    assert any("the two disagree" in caveat for caveat in caveats_of(found, estimate)) == said
    bound = caveats_of(found, replace(estimate, basis="lower bound"))
    assert any("the estimate, 21, was a lower bound" in caveat for caveat in bound) == said


@pytest.mark.parametrize(("pilot", "said"), [(0.725, True), (0.84, False), (0.9, False), (None, False)])
def test_a_pilot_that_learnt_less_than_k_1_did_is_told(pilot, said):
    arm = arm_of("1", [0.8], role="K=1", k=1.0)
    arm = replace(arm, seeds=(replace(arm.seeds[0], val=Scores(0.848)),))
    found = results(arm, chosen="1", pilot=PilotResult("pilot", val_auc=pilot))
    caveats = caveats_of(found, optimal_k(train_auc=0.9552))
    assert any("0.848 at learning rate 0.001, the pilot" in caveat for caveat in caveats) == said

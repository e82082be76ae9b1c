"""Means and differences over seeds, against SciPy."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from negwise.jobs.results import _difference, caveats_of, mean_of, value_of
from negwise.theory.optimal_k import optimal_k


def arm_of(name, values, **more):
    seeds = [
        {"seed": seed, "state": "failed"}
        if value is None
        else {"seed": seed, "state": "done", "test": {"auc": value, "metrics": {"hit@5": value / 2}}}
        for seed, value in enumerate(values)
    ]
    return {"name": name, "rule": name, "seeds": seeds, "tuning": [], "learning_rate": 1e-3, **more}


def test_differences_are_paired_by_seed():
    ours, theirs = [0.91, 0.93, 0.90, 0.95], [0.90, 0.91, 0.89, 0.92]
    found = _difference(arm_of("20", ours), arm_of("1", theirs), "auc")
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert found["mean"] == pytest.approx(np.mean(np.subtract(ours, theirs)))
    assert (found["low"], found["high"]) == pytest.approx((expected.low, expected.high))
    assert found["se"] == pytest.approx(stats.sem(np.subtract(ours, theirs)))
    assert _difference(arm_of("20", ours), arm_of("1", theirs), "hit@5")["mean"] == pytest.approx(found["mean"] / 2)


def test_a_seed_that_failed_on_either_side_is_left_out():
    found = _difference(arm_of("20", [0.9, None, 0.8]), arm_of("1", [0.7, 0.6, None]), "auc")
    assert (found["seeds"], found["mean"], found["se"]) == (1, pytest.approx(0.2), None)
    assert _difference(arm_of("20", [None]), arm_of("1", [0.5]), "auc")["mean"] is None


def test_means_over_seeds():
    mean, error, seeds = mean_of(arm_of("4", [0.8, None, 0.9]), "auc")
    assert (mean, seeds) == (pytest.approx(0.85), 2)
    assert error == pytest.approx(stats.sem([0.8, 0.9]))
    assert mean_of(arm_of("4", [0.8]), "auc") == (0.8, None, 1)
    assert mean_of(arm_of("4", [None]), "auc") == (None, None, 0)
    assert value_of(arm_of("4", [0.8])["seeds"][0], "auc", "val") is None


def test_caveats_that_apply():
    failed = {"arms": [arm_of("1", [0.8, None]), arm_of("4", [0.8, 0.7])]}
    said = " ".join(caveats_of(failed, None))
    assert "Failed: 1 seed 1" in said
    assert "2 seeds" in said
    assert not any("0 seeds" in caveat for caveat in caveats_of({"arms": [arm_of("1", [None])]}, None))
    tuned = arm_of("4", [0.8], tuning=[{"learning_rate": rate} for rate in (1e-4, 3e-4, 1e-3)])
    assert "smallest or largest" in " ".join(caveats_of({"arms": [tuned]}, None))
    for row in tuned["tuning"]:
        row["val_auc"] = 0.9  # all the same: nothing speaks for a wider choice
    assert "smallest or largest" not in " ".join(caveats_of({"arms": [tuned]}, None))
    tuned["tuning"][0]["val_auc"] = 0.8
    assert "smallest or largest" in " ".join(caveats_of({"arms": [tuned]}, None))
    tuned["learning_rate"] = 3e-4
    assert "smallest or largest" not in " ".join(caveats_of({"arms": [tuned]}, None))


def test_weights_that_training_did_not_change_are_told():
    arms = [arm_of("1", [0.8, 0.8]), arm_of("4", [0.8, 0.8])]
    for arm, steps in zip(arms, ((0, 40), (0, 0)), strict=True):
        for seed, step in zip(arm["seeds"], steps, strict=True):
            seed["best_step"] = step
    said = " ".join(caveats_of({"arms": arms}, None))
    assert "validation AUC of 4: the weights kept" in said


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
    found = {"arms": arms, "chosen": k, "pilot": {"val_auc": 0.8}}
    assert any("the two disagree" in caveat for caveat in caveats_of(found, estimate)) == said
    bound = caveats_of(found, replace(estimate, basis="lower bound"))
    assert any("the estimate, 21, was a lower bound" in caveat for caveat in bound) == said


@pytest.mark.parametrize(("pilot", "said"), [(0.725, True), (0.84, False), (0.9, False), (None, False)])
def test_a_pilot_that_learnt_less_than_k_1_did_is_told(pilot, said):
    arm = arm_of("1", [0.8], role="K=1", k=1.0)
    arm["seeds"][0]["val"] = {"auc": 0.848, "metrics": {}}
    found = {"arms": [arm], "chosen": "1", "pilot": {"val_auc": pilot}}
    caveats = caveats_of(found, optimal_k(train_auc=0.9552))
    assert any("0.848 at learning rate 0.001, the pilot" in caveat for caveat in caveats) == said

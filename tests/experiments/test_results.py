"""Means and differences over seeds, against SciPy."""

import numpy as np
import pytest
from scipy import stats

from negwise.experiments.results import _difference, caveats_of, mean_of, value_of


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
    tuned["learning_rate"] = 3e-4
    assert "smallest or largest" not in " ".join(caveats_of({"arms": [tuned]}, None))

"""K* of pilots at every length and under wrong labels, against simulation and plain quadrature."""

import numpy as np
import pytest
from scipy import stats
from second_made_up import run_of

from evidence.second_cells import Cell
from evidence.second_pilots import best_if_wrong, log_of, pilot, star_if_wrong, star_of
from negwise import auc

PILOT = Cell("items", "1", 10, 1000)
KS = np.arange(1, 1001)
X = np.linspace(-9, 13, 1001)


def by_quadrature(mu, ks):
    """P(mu, K) of each K by a plain sum."""
    return (stats.norm.pdf(X - mu) * (X[1] - X[0])) @ stats.norm.cdf(X)[:, None] ** ks


def simulated(mu, wrong, k, rows, dice):
    """How often a positive, ``wrong`` of them random, is above K negatives: by drawing every score."""
    right = dice.random(rows) >= wrong
    return (dice.normal(mu * right)[:, None] > dice.normal(size=(rows, k))).all(1).mean()


def test_a_share_of_wrong_labels_moves_auc_as_simulated():
    """Scores of positives, 30% of them drawn from the negatives: AUC is .7 of what it was, and .3 of one half."""
    dice, log = np.random.default_rng(0), log_of(run_of(PILOT, 5, separation=1.5), train_wrong=0.3)
    positives = dice.normal(1.5 * (dice.random(400_000) >= 0.3))
    assert log.of_split("train")[-1].auc == pytest.approx((positives > dice.normal(size=400_000)).mean(), abs=0.003)
    assert log.of_split("val")[-1].auc == pytest.approx(float(auc(0.9 * 1.5)))


@pytest.mark.parametrize("wrong", [0.0, 0.05, 0.2, 0.4])
def test_the_definitions_with_wrong_labels_against_simulation_and_quadrature(wrong):
    """P(A) of the mixture by a plain sum, which scores that are drawn confirm; good, bad and easy samples by shares."""
    mu, dice = 2.0, np.random.default_rng(1)
    p_a = (1 - wrong) * by_quadrature(mu, KS) + wrong * by_quadrature(0.0, KS)
    for k in (1, 5, 20, 100):
        assert simulated(mu, wrong, k, 40_000, dice) == pytest.approx(p_a[k - 1], abs=0.01)
    val = 0.9 * mu * (1 - np.exp(-np.linspace(0, 3, 26))) / (1 - np.exp(-3))
    b = np.array([by_quadrature(one, KS) for one in val[: int(np.argmax(val >= 0.95 * val.max())) + 1]])
    p_b = (b.sum(0) - (b[0] + b[-1]) / 2) / (len(b) - 1)
    good, bad = p_a * (1 - p_b), p_b * (1 - p_a)
    best = KS[int(np.argmax(0.9 * (good - bad) + 0.1 * (1 - good - bad)))]
    assert best_if_wrong(run_of(PILOT, 5, size=1001, separation=mu), wrong) == pytest.approx(best, rel=0.01, abs=0.6)


def test_the_formula_falls_with_wrong_labels_and_its_definitions_rise():
    """The AUC of a mixture read as one Gaussian says few negatives; the mixture itself says many."""
    run = run_of(PILOT, 5, size=5001, separation=2.5)
    formula, truth = ([f(run, share) for share in (0.0, 0.05, 0.2, 0.4)] for f in (star_if_wrong, best_if_wrong))
    assert formula[0] == pytest.approx(truth[0], rel=0.5)  # the training curve still rises: it is read further on
    assert formula == sorted(formula, reverse=True) and formula[-1] < formula[0] / 3
    assert truth == sorted(truth) and truth[-1] > 3 * truth[0]


def test_a_pilot_with_wrong_labels_reads_as_was_forecast():
    """Training AUC measured on wrong labels, validation read as they would have it: the forecast from right ones."""
    share, right = 0.2, run_of(PILOT, 5, size=5001, separation=2.5)
    wrong = run_of(PILOT, 5, size=5001, separation=2.5, noise=share)
    wrong["curves"]["train"]["auc"] = [(1 - share) * one + share / 2 for one in right["curves"]["train"]["auc"]]
    assert star_of(wrong) == pytest.approx(star_if_wrong(right, share))
    assert star_of(right) == pytest.approx(star_if_wrong(right, 0.0))


def test_k_grows_with_the_pilot_where_its_separation_does():
    log = log_of(run_of(PILOT, 5, separation=2.5))
    each = [pilot(log, 1e4, share) for share in (0.2, 0.5, 1.0)]
    ks = [one.k for one in each]
    assert ks == sorted(ks) and each[2].holds(each[2].k) and not each[0].holds(each[2].k)
    assert pilot(log_of(run_of(Cell("items", "20", 10, 1000), 5)), 1e4) is None  # no training curve

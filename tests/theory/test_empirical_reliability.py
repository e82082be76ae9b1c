import itertools
from fractions import Fraction
from math import comb

import numpy as np
import pytest

from negwise.errors import InputError
from negwise.theory.empirical_reliability import ScoreRanks, rank_auc, rank_reliability, score_ranks
from negwise.theory.reliability import reliability


def by_enumeration(positive, negatives, k):
    """Beat every subset of K negatives; a tie among j negatives is won in one order out of j + 1."""
    wins = []
    for chosen in itertools.combinations(negatives, k):
        if max(chosen, default=-np.inf) > positive:
            wins.append(0.0)
        else:
            wins.append(1.0 / (1 + sum(value == positive for value in chosen)))
    return float(np.mean(wins))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("k", [0, 1, 2, 3, 7])
def test_against_enumeration_with_ties(seed, k):
    rng = np.random.default_rng(seed)
    positives, negatives = rng.integers(0, 5, 6), rng.integers(0, 5, (6, 7))
    plain = np.mean([by_enumeration(p, row, k) for p, row in zip(positives, negatives, strict=True)])
    assert rank_reliability(score_ranks(positives, negatives), np.array([float(k)]))[0] == pytest.approx(
        plain, abs=1e-12
    )


def test_unbiased_against_the_gaussian_truth():
    rng = np.random.default_rng(0)
    k = np.array([1.0, 4.0, 20.0, 50.0])
    estimates = [
        rank_reliability(score_ranks(rng.normal(1.5, 1, 100), rng.standard_normal((100, 50))), k) for _ in range(400)
    ]
    mean, se = np.mean(estimates, axis=0), np.std(estimates, axis=0) / 20
    assert np.all(np.abs(mean - reliability(1.5, k)) < 4 * se)


def test_real_k_is_the_straight_line_between_whole_ones():
    ranks = score_ranks([0.3, 1.0], np.random.default_rng(1).standard_normal((2, 30)))
    at = rank_reliability(ranks, np.array([4.0, 4.25, 5.0]))
    assert at[1] == pytest.approx(0.75 * at[0] + 0.25 * at[2])


def test_shared_negatives_equal_the_same_row_for_all():
    rng = np.random.default_rng(2)
    positives, pool = rng.integers(0, 9, 20), rng.integers(0, 9, 15)
    shared, own = score_ranks(positives, pool), score_ranks(positives, np.tile(pool, (20, 1)))
    np.testing.assert_array_equal(shared.below, own.below)
    np.testing.assert_array_equal(shared.ties, own.ties)


def test_auc_equals_scikit_learn():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(3)
    positives, pool = rng.integers(0, 30, 200), rng.integers(0, 25, 300)
    expected = roc_auc_score(np.r_[np.ones(200), np.zeros(300)], np.r_[positives, pool])
    value, se = rank_auc(score_ranks(positives, pool))
    assert value == pytest.approx(expected, abs=1e-12)
    assert se > 0


@pytest.mark.parametrize(
    ("positives", "negatives"), [([], [1.0]), ([[1.0]], [1.0]), ([1.0, 2.0], [[1.0], [2.0], [3.0]]), ([1.0], [])]
)
def test_wrong_shapes_are_named(positives, negatives):
    with pytest.raises(InputError, match=r"scores: got shape .*expected"):
        score_ranks(positives, negatives)


def test_more_negatives_than_were_scored_are_refused():
    with pytest.raises(InputError, match="expected at most 3"):
        rank_reliability(score_ranks([1.0], [0.0, 1.0, 2.0]), np.array([4.0]))


def test_a_million_negatives_lose_no_digits():
    """Against whole numbers: C(r + j, K) / C(m, K), averaged over the places that ties may take."""
    m, ks = 10**6, np.array([1.0, 2.0, 3.0, 10.0])
    best = rank_reliability(ScoreRanks(np.full(10, float(m)), np.zeros(10), m), ks)
    assert best.tolist() == [1.0] * 4
    for r, t in ((999_990, 3), (10**6 - 65, 65), (500_000, 500), (17, 0)):
        found = rank_reliability(ScoreRanks(np.array([float(r)]), np.array([float(t)]), m), ks)
        want = [float(Fraction(sum(comb(r + j, int(k)) for j in range(t + 1)), (t + 1) * comb(m, int(k)))) for k in ks]
        np.testing.assert_allclose(found, want, rtol=3e-5 if t > 64 else 1e-7)

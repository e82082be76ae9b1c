"""Per-query metrics against scikit-learn, MIND's own loop, and averages over every order of the ties."""

from __future__ import annotations

import itertools
import math

import metric_loops as loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, roc_auc_score

from negwise.errors import InputError
from negwise.metrics import auc_per_query, hit_rate, mrr, ndcg, rank, reciprocal_rank, reliability_of_ranks, wins

LEVELS = pytest.mark.parametrize("levels", [None, 3, 1], ids=["no ties", "ties", "all tied"])


def kept(values):
    return values[~np.isnan(values)]


@LEVELS
def test_auc_is_that_of_scikit_learn(levels):
    data = loops.ragged(seed=1, queries=300, largest=30, levels=levels)
    referee = [roc_auc_score(y, s) for s, y in loops.scored(*data)]
    np.testing.assert_allclose(kept(auc_per_query(rank(*data))), referee, rtol=1e-12)


@LEVELS
def test_wins_are_those_of_a_loop_over_pairs(levels):
    data = loops.ragged(seed=2, queries=200, largest=20, levels=levels)
    assert kept(wins(rank(*data))).tolist() == [loops.wins(s, y) for s, y in loops.scored(*data)]


@LEVELS
def test_reliability_is_the_chance_to_beat_k_random_candidates(levels):
    """A loop over positives; at K = 1 the mean share of the others below, at K = 0 certainty."""
    scores, labels, offsets = loops.ragged(seed=5, queries=40, largest=15, levels=levels)
    found = reliability_of_ranks(rank(scores, labels, offsets), (0, 1, 2.5, 100))
    chances = []
    for start, end in itertools.pairwise(offsets):
        for place in range(start, end):
            others = [scores[j] for j in range(start, end) if j != place]
            if labels[place] and others:
                below = sum(1.0 if s < scores[place] else 0.5 * (s == scores[place]) for s in others) / len(others)
                chances.append([below**k for k in (0, 1, 2.5, 100)])
    np.testing.assert_allclose(found, np.mean(chances, axis=0), rtol=1e-12)


def test_reliability_without_positives_is_nan():
    assert np.isnan(reliability_of_ranks(rank([1.0, 2.0], [0, 0], [0, 2]), (1, 2))).all()


@LEVELS
@pytest.mark.parametrize("n", [1, 3, 10, 1000])
def test_ndcg_is_that_of_scikit_learn_ties_included(levels, n):
    data = loops.ragged(seed=3, queries=300, largest=30, levels=levels)
    referee = [ndcg_score([y], [s], k=n) for s, y in loops.scored(*data)]
    np.testing.assert_allclose(kept(ndcg(rank(*data), n)), referee, rtol=1e-12)


@LEVELS
@pytest.mark.parametrize(
    ("metric", "referee"),
    [
        (mrr, loops.mind_mrr),
        (reciprocal_rank, loops.first_rr),
        (lambda r: ndcg(r, 2), loops.ndcg(2)),
        (lambda r: ndcg(r, 5), loops.ndcg(5)),
        (lambda r: hit_rate(r, 1), loops.hit(1)),
        (lambda r: hit_rate(r, 3), loops.hit(3)),
    ],
    ids=["mrr", "first rr", "ndcg@2", "ndcg@5", "hit@1", "hit@3"],
)
def test_ties_give_the_mean_over_every_order(levels, metric, referee):
    data = loops.ragged(seed=4, queries=60, largest=6, levels=levels)
    expected = [loops.over_ties(referee, s, y) for s, y in loops.scored(*data)]
    np.testing.assert_allclose(kept(metric(rank(*data))), expected, rtol=1e-12, atol=1e-12)


def test_large_tied_blocks_with_several_positives():
    """1,000 tied candidates, 40 of them positives, below 3 others: against direct sums of exact binomials."""
    above, tied, positives, n = 3, 1000, 40, 50
    scores = np.concatenate([np.full(above, 1.0), np.zeros(tied)])
    labels = np.concatenate([np.zeros(above + tied - positives, bool), np.ones(positives, bool)])
    ranks = rank(scores, labels, [0, above + tied])
    places = n - above
    missed = math.comb(tied - positives, places) / math.comb(tied, places)
    np.testing.assert_allclose(hit_rate(ranks, n), [1 - missed], rtol=1e-12)
    total = math.comb(tied, positives)
    first = sum(math.comb(tied - x, positives - 1) / total / (above + x) for x in range(1, tied - positives + 2))
    np.testing.assert_allclose(reciprocal_rank(ranks), [first], rtol=1e-12)


def test_a_query_without_positive_or_negative_has_no_value():
    ranks = rank([1.0, 2, 3, 4, 5, 6], [0, 0, 1, 1, 1, 0], [0, 2, 2, 4, 6])  # none, empty, only positives, fine
    for values in (auc_per_query(ranks), mrr(ranks), reciprocal_rank(ranks), ndcg(ranks, 5), hit_rate(ranks, 5)):
        assert np.isnan(values).tolist() == [True, True, True, False]


def test_no_query_at_all():
    ranks = rank(np.empty(0), np.empty(0, dtype=bool), [0])
    for values in (wins(ranks), mrr(ranks), reciprocal_rank(ranks), ndcg(ranks, 5), hit_rate(ranks, 5)):
        assert values.shape == (0,)


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "5"])
@pytest.mark.parametrize("metric", [ndcg, hit_rate])
def test_a_bad_cutoff_is_refused(metric, n):
    with pytest.raises(InputError, match="whole number from 1"):
        metric(rank([1.0, 2.0], [1, 0], [0, 2]), n)


groups = st.lists(
    st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=0, max_size=8), min_size=1, max_size=8
)


def flat(drawn):
    pairs = [pair for group in drawn for pair in group]
    scores = np.array([score for score, _ in pairs], dtype=np.float64)
    labels = np.array([label for _, label in pairs], dtype=bool)
    return scores, labels, np.cumsum([0] + [len(group) for group in drawn])


@settings(max_examples=60, deadline=None)
@given(drawn=groups)
def test_only_the_order_of_scores_matters(drawn):
    scores, labels, offsets = flat(drawn)
    plain = rank(scores, labels, offsets)
    for moved in (np.exp(scores) - 99, 1e6 * scores**3 - 5, np.arctan(scores).astype(np.float32)):
        ranks = rank(moved, labels, offsets)
        for metric in (auc_per_query, mrr, reciprocal_rank, lambda r: ndcg(r, 3), lambda r: hit_rate(r, 2)):
            np.testing.assert_array_equal(metric(ranks), metric(plain))


@settings(max_examples=60, deadline=None)
@given(drawn=groups)
def test_the_opposite_sign_gives_one_minus_auc(drawn):
    scores, labels, offsets = flat(drawn)
    forward, backward = (auc_per_query(rank(s, labels, offsets)) for s in (scores, -scores))
    np.testing.assert_allclose(forward, 1 - backward, rtol=0, atol=1e-15)


@settings(max_examples=60, deadline=None)
@given(drawn=groups)
def test_values_lie_where_they_must(drawn):
    ranks = rank(*flat(drawn))
    for metric in (auc_per_query, mrr, reciprocal_rank, lambda r: ndcg(r, 3), lambda r: hit_rate(r, 2)):
        values = kept(metric(ranks))
        assert ((values >= 0) & (values <= 1 + 1e-12)).all()
    assert (kept(mrr(ranks)) <= kept(reciprocal_rank(ranks)) + 1e-12).all()
    assert (kept(hit_rate(ranks, 2)) <= kept(hit_rate(ranks, 3)) + 1e-12).all()

"""Totals over queries: definitions by plain loops, merging, JSON, and standard errors by Monte-Carlo."""

from __future__ import annotations

import functools
import itertools
import json
import math
import operator

import metric_loops as loops
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from negwise.errors import InputError
from negwise.metrics import MetricSummary, Ratio, evaluate, rank

LEVELS = pytest.mark.parametrize("levels", [None, 3], ids=["no ties", "ties"])


@LEVELS
def test_auc_is_the_mean_over_positives_of_the_share_of_own_negatives_below(levels):
    data = loops.ragged(seed=5, queries=150, largest=12, levels=levels)
    shares = [np.mean([(own > n) + 0.5 * (own == n) for n in s[~y]]) for s, y in loops.scored(*data) for own in s[y]]
    assert evaluate(rank(*data)).auc.value == pytest.approx(np.mean(shares), rel=1e-12)


@LEVELS
def test_the_other_aucs_and_the_counts(levels):
    data = loops.ragged(seed=6, queries=150, largest=12, levels=levels)
    summary, queries = evaluate(rank(*data)), loops.scored(*data)
    pairs = [int(y.sum() * (~y).sum()) for _, y in queries]
    won = [loops.wins(s, y) for s, y in queries]
    assert summary["auc_query"].value == pytest.approx(np.mean([roc_auc_score(y, s) for s, y in queries]), rel=1e-12)
    assert summary["auc_pooled"].value == pytest.approx(sum(won) / sum(pairs), rel=1e-12)
    assert (summary.queries, summary.pairs, summary.wins) == (len(queries), sum(pairs), sum(won))
    sizes = [(int(y.sum()), len(y)) for _, y in loops.split(*data)]
    assert summary.no_positive == sum(p == 0 for p, _ in sizes)
    assert summary.no_negative == sum(p == size > 0 for p, size in sizes)
    assert summary.queries + summary.no_positive + summary.no_negative == len(sizes)


def test_all_scores_thrown_together_are_one_large_query():
    scores, labels, _ = loops.ragged(seed=7, queries=400, largest=20, levels=50)
    summary = evaluate(rank(scores, labels, [0, len(scores)]))
    assert summary.auc.value == pytest.approx(roc_auc_score(labels, scores), rel=1e-12)
    assert math.isnan(summary.auc.se)


def test_top_n_metrics_are_means_over_queries():
    data = loops.ragged(seed=8, queries=80, largest=6, levels=4)
    summary, queries = evaluate(rank(*data), cutoffs=(1, 3)), loops.scored(*data)
    referees = {
        "mrr": loops.mind_mrr,
        "rr": loops.first_rr,
        "ndcg@1": loops.ndcg(1),
        "ndcg@3": loops.ndcg(3),
        "hit@1": loops.hit(1),
        "hit@3": loops.hit(3),
    }
    for name, referee in referees.items():
        values = [loops.over_ties(referee, s, y) for s, y in queries]
        assert summary[name].value == pytest.approx(np.mean(values), rel=1e-12)
        assert summary[name].se == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), rel=1e-9)
    assert set(summary.metrics) == {"auc", "auc_pooled", "auc_query", *referees}


def test_with_one_positive_everywhere_the_definitions_agree():
    rng = np.random.default_rng(9)
    labels = np.tile(np.arange(10) == 4, 50)
    summary = evaluate(rank(rng.integers(0, 5, 500), labels, np.arange(0, 501, 10)))
    for name in ("auc_query", "auc_pooled"):
        assert summary.auc.value == pytest.approx(summary[name].value, rel=1e-12)
        assert summary.auc.se == pytest.approx(summary[name].se, rel=1e-9)
    assert summary["mrr"].value == pytest.approx(summary["rr"].value, rel=1e-12)


def close(a: MetricSummary, b: MetricSummary) -> None:
    assert (a.queries, a.no_positive, a.no_negative, a.pairs) == (b.queries, b.no_positive, b.no_negative, b.pairs)
    assert a.metrics.keys() == b.metrics.keys()
    for name in a.metrics:
        np.testing.assert_allclose(a[name].value, b[name].value, rtol=1e-12)
        np.testing.assert_allclose(a[name].se, b[name].se, rtol=1e-6, atol=1e-9)


def parts_of(data, cuts):
    """The summaries of consecutive runs of queries."""
    scores, labels, offsets = data
    bounds = [0, *sorted(cuts), len(offsets) - 1]
    for low, high in itertools.pairwise(bounds):
        first, last = offsets[low], offsets[high]
        yield evaluate(rank(scores[first:last], labels[first:last], offsets[low : high + 1] - first))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 40), max_size=5), turn=st.integers(0, 5))
def test_parts_merge_to_the_whole_in_any_grouping_and_order(seed, cuts, turn):
    data = loops.ragged(seed=seed, queries=40, largest=8, levels=4)
    whole, parts = evaluate(rank(*data)), list(parts_of(data, cuts))
    close(functools.reduce(operator.add, parts), whole)
    close(functools.reduce(lambda right, left: left + right, parts[::-1]), whole)
    turn %= len(parts)
    close(functools.reduce(operator.add, parts[turn:] + parts[:turn]), whole)


def test_different_cutoffs_do_not_merge():
    ranks = rank([1.0, 2.0], [1, 0], [0, 2])
    with pytest.raises(InputError, match="differ in hit@10, ndcg@10"):
        evaluate(ranks, cutoffs=(5,)) + evaluate(ranks, cutoffs=(5, 10))


def test_an_unknown_metric_names_those_there_are():
    with pytest.raises(InputError, match=r"no metric 'ndcg@7'.*ndcg@5"):
        evaluate(rank([1.0, 2.0], [1, 0], [0, 2]))["ndcg@7"]


def test_comes_back_from_json_the_same():
    summary = evaluate(rank(*loops.ragged(seed=10, levels=3)))
    assert MetricSummary.from_dict(json.loads(json.dumps(summary.to_dict(), allow_nan=False))) == summary


def test_record_is_plain_json_with_null_for_what_is_undefined():
    record = evaluate(rank([1.0, 2.0], [1, 0], [0, 2]), cutoffs=(1,)).record()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert (record["auc"], record["auc_se"], record["queries"], record["pairs"]) == (0.0, None, 1, 1)
    assert record["metrics"]["hit@1"] == 0.0
    empty = evaluate(rank([1.0, 2.0, 3.0], [1, 0, 0], [0, 1, 2, 3])).record()
    assert (empty["auc"], empty["auc_se"], empty["queries"]) == (None, None, 0)
    assert (empty["no_positive"], empty["no_negative"]) == (2, 1)


def test_ratio_is_the_textbook_estimator():
    rng = np.random.default_rng(11)
    x = rng.integers(1, 9, 500).astype(float)
    y = x * rng.normal(0.7, 0.2, 500)
    ratio = Ratio.of(y, x)
    value = y.sum() / x.sum()
    residual = y - value * x
    assert ratio.value == pytest.approx(value, rel=1e-14)
    assert ratio.se == pytest.approx(np.std(residual, ddof=1) / (math.sqrt(500) * x.mean()), rel=1e-10)


def test_queries_that_all_agree_have_no_error():
    assert Ratio.of(np.full(1000, 0.1), 1.0).se == pytest.approx(0, abs=1e-9)


def simulated(rng, queries):
    """Queries that differ: a shift of its own for the positives of each, and more of them where it is small."""
    shift = rng.normal(1, 0.8, queries)
    positives = 1 + rng.poisson(np.exp(-shift))
    negatives = rng.integers(3, 12, queries)
    sizes = positives + negatives
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    query = np.repeat(np.arange(queries), sizes)
    labels = np.arange(offsets[-1]) - offsets[query] < positives[query]
    return rng.normal(size=offsets[-1]) + labels * shift[query], labels, offsets


def test_standard_errors_are_those_of_fresh_queries():
    """The spread of the estimates over 1,500 fresh sets of 120 queries is what each set's own error says it is."""
    rng = np.random.default_rng(12)
    names = ("auc", "auc_pooled", "auc_query", "mrr", "rr", "ndcg@5", "hit@5")
    values, errors = np.empty((1500, len(names))), np.empty((1500, len(names)))
    for trial in range(1500):
        summary = evaluate(rank(*simulated(rng, 120)), cutoffs=(5,))
        values[trial] = [summary[name].value for name in names]
        errors[trial] = [summary[name].se for name in names]
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), values.std(axis=0, ddof=1), rtol=0.08)
    large = evaluate(rank(*simulated(rng, 200_000)), cutoffs=(5,))
    truth = np.array([large[name].value for name in names])
    covered = (np.abs(values - truth) < 1.96 * errors).mean(axis=0)
    assert ((covered > 0.92) & (covered < 0.97)).all(), covered
    # Errors over pairs, as if every pair were a draw of its own, are far too small.
    share, pairs = large["auc_pooled"].value, large.pairs / 200_000 * 120
    assert math.sqrt(share * (1 - share) / pairs) < 0.6 * values[:, 1].std()

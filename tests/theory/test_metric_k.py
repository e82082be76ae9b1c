"""K for the metric: areas against sums by hand, the soft cut-off against brute force."""

import math

import numpy as np
import pytest

from negwise import k_for_metric
from negwise.errors import InputError
from negwise.theory.metric_k import discount_area


def gain(metric, rank, candidates):
    """What a metric gives for one positive with ``rank`` candidates above it, relative to rank 0."""
    name, _, n = metric.partition("@")
    if name == "hit":
        return float(rank < int(n))
    if name == "ndcg":
        return 1 / math.log2(rank + 2) if rank < int(n) else 0.0
    return 1 / (rank + 1) if name == "mrr" else 1 - rank / candidates


@pytest.mark.parametrize("candidates", [7, 37, 3416])
@pytest.mark.parametrize("metric", ["hit@1", "hit@5", "hit@400", "ndcg@5", "ndcg@10", "mrr", "auc"])
def test_the_area_is_the_sum_of_the_discounts(metric, candidates):
    want = sum(gain(metric, rank, candidates) for rank in range(candidates))
    half = 0.5 if metric == "auc" else 0.0  # a sum of M steps of a straight line is M / 2 + 1 / 2
    assert discount_area(metric, candidates) == pytest.approx(want - half)


@pytest.mark.parametrize("metric", ["hit@5", "ndcg@10", "mrr"])
def test_training_with_that_k_weighs_ranks_as_the_metric_does(metric):
    """Brute force: draw K of M candidates for positives of every rank, and count those that beat all of them."""
    candidates, rng = 600, np.random.default_rng(0)
    k = round(k_for_metric(metric, candidates))
    ranks = np.repeat(np.arange(candidates), 200)
    beaten = (rng.integers(0, candidates, (len(ranks), k)) < ranks[:, None]).any(1)
    area = (~beaten).sum() / 200  # sum over ranks of the chance to be first
    # The sum over whole ranks is half a place more than the area under the curve, M / (K + 1).
    assert area - 0.5 == pytest.approx(candidates / (k + 1), rel=0.05)
    assert candidates / k == pytest.approx(discount_area(metric, candidates), rel=0.02)


def test_known_values():
    assert k_for_metric("ndcg@10", 3416) == pytest.approx(752, abs=0.5)
    assert k_for_metric("hit@5", 1869) == pytest.approx(373.8)
    assert k_for_metric("ndcg@10", candidates=37) == 36
    assert k_for_metric("ndcg@10", candidates=200) == k_for_metric("hit@5", candidates=12, available=119) == 64
    assert k_for_metric("auc", 3416) == k_for_metric("hit@400", 3251) == 64
    assert k_for_metric("hit@100", 100_000) == 1000


def test_there_are_never_more_than_there_are():
    assert k_for_metric("auc", 37) == 36 and k_for_metric("hit@1", 50) == 49
    assert k_for_metric("hit@5", 1869, available=128) == 128
    assert k_for_metric("hit@5", 1) == 1


@pytest.mark.parametrize("metric", ["accuracy", "ndcg", "hit@0", "hit@x", "auc@5", "mrr@10", "ndcg@-1", ""])
def test_other_metrics_are_refused(metric):
    with pytest.raises(InputError, match=r"metric: got .*expected auc, mrr, ndcg@N or hit@N"):
        k_for_metric(metric, 100)
    with pytest.raises(InputError, match="candidates: got 0"):
        k_for_metric("auc", 0)

"""One metric value for each query (Q,), from its ranks. NaN for queries without a positive or without a negative.

**Ties.** Every value is the expectation over a random order of tied candidates, computed in closed form.
A model that gives all candidates the same score gets AUC 1/2, whatever the order of the file.

Shapes: Q queries, P positives.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError
from negwise.metrics.ranks import Ints, Ranks

Floats = NDArray[np.float64]


def wins(ranks: Ranks) -> Floats:
    """Number of (positive, negative) pairs of each query in the right order; a tie counts 1/2.

    Each positive is counted against all candidates. A pair of positives adds 1 in any order, which is subtracted.
    """
    below = np.repeat(ranks.sizes, ranks.positives) - ranks.above - 0.5 * ranks.tied - 0.5
    return _nan_if_unscored(ranks, _sum_by_query(ranks, below) - ranks.positives * (ranks.positives - 1) / 2)


def auc_per_query(ranks: Ranks) -> Floats:
    """Share of pairs in the right order: the area under the ROC curve of each query (MIND's AUC per impression)."""
    return wins(ranks) / _nan_if_unscored(ranks, ranks.positives * ranks.negatives)


def ndcg(ranks: Ranks, n: int) -> Floats:
    """``sum over positives with rank <= n of 1 / log2(rank + 1)``, divided by the same sum for the ideal order."""
    gains = 1 / np.log2(np.arange(2, _check_cutoff(n) + 2))
    best = np.append(0.0, np.cumsum(gains))[np.minimum(ranks.positives, n)]
    return _sum_by_query(ranks, _expected_weight(ranks, gains)) / _nan_if_unscored(ranks, best)


def mrr(ranks: Ranks) -> Floats:
    """Mean of 1 / rank over the positives of each query, as MIND defines it.

    With one positive this is its reciprocal rank. `reciprocal_rank` takes the best of several positives.
    """
    inverse = 1 / np.arange(1, ranks.sizes.max(initial=0) + 1)
    return _sum_by_query(ranks, _expected_weight(ranks, inverse)) / _nan_if_unscored(ranks, ranks.positives)


def reciprocal_rank(ranks: Ranks) -> Floats:
    """1 / rank of the best positive of each query: the reciprocal rank of information retrieval."""
    above, tied, positives = _block_of_best_positive(ranks)
    inverse = 1 / np.arange(1, ranks.sizes.max(initial=0) + 1)
    values = _expected_weight_at(inverse, above, tied)
    several = np.flatnonzero((positives > 1) & (tied > 1))
    blocks, which = np.unique(
        np.stack([above[several], tied[several], positives[several]]), axis=1, return_inverse=True
    )
    exact = np.array([_expected_reciprocal_of_first(*block) for block in blocks.T.tolist()])
    values[several] = exact[which.ravel()] if len(several) else 0.0
    return _fill_queries_without_positives(ranks, values)


def hit_rate(ranks: Ranks, n: int) -> Floats:
    """1 if a positive of the query is in the top ``n``, else 0.

    If ``t`` tied candidates, ``p`` of them positive, share the last ``m`` slots of the top ``n``, no positive gets a
    slot with probability ``C(t - p, m) / C(t, m)``, a product of ``p`` factors.
    """
    above, tied, positives = _block_of_best_positive(ranks)
    slots = np.maximum(_check_cutoff(n) - above, 0)
    block = np.repeat(np.arange(len(above)), positives)
    starts = np.cumsum(positives) - positives
    taken = np.arange(len(block)) - starts[block]
    factors = np.maximum(tied[block] - slots[block] - taken, 0) / (tied[block] - taken)
    missed = np.multiply.reduceat(factors, starts) if len(starts) else np.empty(0)
    return _fill_queries_without_positives(ranks, 1 - missed)


def query_values(ranks: Ranks, metric: str) -> Floats:
    """The metric of each query by its name, as "ndcg@10"; every kind of AUC is that of the query."""
    name, _, n = metric.partition("@")
    if name.startswith("auc"):
        return auc_per_query(ranks)
    if n:
        return {"ndcg": ndcg, "hit": hit_rate}[name](ranks, int(n))
    return {"mrr": mrr, "rr": reciprocal_rank}[name](ranks)


def reliability_of_ranks(ranks: Ranks, ks: Sequence[float]) -> Floats:
    """P(K) of a model at each of ``ks`` (n,): the mean chance that a positive beats K random candidates of its query.

    ``(1 - a / m)^K`` for a positive with a of its m other candidates above it, a tie counting half. NaN without
    positives.
    """
    others = np.repeat(ranks.sizes, ranks.positives) - 1
    above = ranks.above + (ranks.tied - 1) / 2
    share, times = np.unique(1 - above[others > 0] / others[others > 0], return_counts=True)
    if not len(share):
        return np.full(len(ks), np.nan)
    return np.array([float(times @ share**k / times.sum()) for k in ks])


def _expected_weight(ranks: Ranks, weights: Floats) -> Floats:
    """(P,) Mean weight of the ranks that a positive can have. Ranks beyond ``weights`` have weight 0."""
    return _expected_weight_at(weights, ranks.above, ranks.tied)


def _expected_weight_at(weights: Floats, above: Ints, tied: Ints) -> Floats:
    values = np.append(weights, 0.0)[np.minimum(above, len(weights))]
    many = np.flatnonzero(tied > 1)
    sums = np.append(0.0, np.cumsum(weights))
    low, high = above[many], above[many] + tied[many]
    values[many] = (sums[np.minimum(high, len(weights))] - sums[np.minimum(low, len(weights))]) / tied[many]
    return values


def _expected_reciprocal_of_first(above: int, tied: int, positives: int) -> float:
    """E[1 / (above + X)], where X is the smallest of ``positives`` random slots out of ``tied``.

    ``P(X = 1) = p / t`` and ``P(X = x + 1) / P(X = x) = (t - x - p + 1) / (t - x)``.
    """
    place = np.arange(1, tied - positives + 2)
    odds = np.cumprod(np.append(positives / tied, (tied - place - positives + 1)[:-1] / (tied - place)[:-1]))
    return float(odds @ (1 / (above + place)))


def _block_of_best_positive(ranks: Ranks) -> tuple[Ints, Ints, Ints]:
    """(above, tied, positives) of the candidates tied with the best positive, for each query that has one."""
    counts = ranks.positives[ranks.positives > 0]
    if len(counts) == 0:
        return counts, counts, counts
    starts = np.cumsum(counts) - counts
    above = np.minimum.reduceat(ranks.above, starts)
    first = ranks.above == np.repeat(above, counts)
    return above, np.maximum.reduceat(ranks.tied * first, starts), np.add.reduceat(first, starts, dtype=np.int64)


def _sum_by_query(ranks: Ranks, values: Floats) -> Floats:
    """(Q,) Sums of ``values`` (P,) over the positives of each query."""
    sums = np.bincount(ranks.query, weights=values, minlength=len(ranks.positives))
    return sums.astype(np.float64, copy=False)


def _fill_queries_without_positives(ranks: Ranks, values: Floats) -> Floats:
    values_of_all = np.zeros(len(ranks.positives))
    values_of_all[ranks.positives > 0] = values
    return _nan_if_unscored(ranks, values_of_all)


def _nan_if_unscored(ranks: Ranks, values: NDArray[np.float64 | np.int64]) -> Floats:
    return np.where(ranks.scored, values, np.nan)


def _check_cutoff(n: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise InputError(f"the cutoff n of nDCG and hit rate must be a whole number from 1; got {n!r}")
    return int(n)

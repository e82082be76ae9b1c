"""AUC, nDCG, hit rate and MRR over queries of any size: exact with ties, mergeable, with standard errors.

::

    summary = evaluate(rank(scores, labels, offsets))            # candidates of each query, flat
    summary = evaluate(rank_catalogue(scores, positives, ...))   # one positive against all items
    summary.auc.value, summary.auc.se, summary.queries, summary.pairs, summary["ndcg@10"].value

A query without a positive or without a negative has no ranking to evaluate. No metric includes it; it is counted.
"""

from negwise.metrics.per_query import auc_per_query, hit_rate, mrr, ndcg, reciprocal_rank, reliability_of_ranks, wins
from negwise.metrics.ranks import Ranks, rank, rank_catalogue
from negwise.metrics.summary import MetricSummary, Ratio, difference, evaluate

__all__ = [
    "MetricSummary",
    "Ranks",
    "Ratio",
    "auc_per_query",
    "difference",
    "evaluate",
    "hit_rate",
    "mrr",
    "ndcg",
    "rank",
    "rank_catalogue",
    "reciprocal_rank",
    "reliability_of_ranks",
    "wins",
]

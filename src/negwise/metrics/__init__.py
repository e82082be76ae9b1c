"""AUC, nDCG, hit rate and MRR of ragged groups: exact with ties, mergeable, with standard errors over queries.

::

    tally = evaluate(rank(scores, labels, offsets))              # candidates of each query, flat
    tally = evaluate(rank_catalogue(scores, positives, ...))     # one positive against all items
    tally.auc.value, tally.auc.se, tally.queries, tally.pairs, tally["ndcg@10"].value

A query without a positive or without a negative has no order to judge: it is in no metric, and counted.
"""

from negwise.metrics.catalogue import rank_catalogue
from negwise.metrics.queries import auc_per_query, hit_rate, mrr, ndcg, reciprocal_rank, wins
from negwise.metrics.ranks import Ranks, rank
from negwise.metrics.tally import Ratio, Tally, evaluate

__all__ = [
    "Ranks",
    "Ratio",
    "Tally",
    "auc_per_query",
    "evaluate",
    "hit_rate",
    "mrr",
    "ndcg",
    "rank",
    "rank_catalogue",
    "reciprocal_rank",
    "wins",
]

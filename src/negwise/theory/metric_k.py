r"""K for the metric: K random negatives are a ranking metric with a soft cut-off at M / K.

If a of M candidates score above a positive, it beats K random ones with probability
:math:`(1 - a/M)^K \approx e^{-a / (M/K)}`: a discount of the rank a, of area M / K. A metric with discount w(a),
w(0) = 1, has the area :math:`n_w = \sum_a w(a)`. Both areas are equal at ``K = M / n_w``.
"""

from __future__ import annotations

import math

from negwise.errors import InputError

INFORMATION = 64
"""Negatives that any metric needs: on three data sets K = 50 has 83% or more of the gain in hit@50 on, and with 21
candidates the five of M / n_w had 56% of the gain in ndcg@10 (docs/log.md)."""
DEEP = 10
"""A cut-off beyond this place is deep: information counts, and alignment does not."""


def discount_area(metric: str, candidates: int) -> float:
    """n_w, the sum of the metric's discounts over ranks: n for hit@n, 4.54 for ndcg@10, H_M for mrr, M / 2 for auc.

    >>> round(discount_area("ndcg@10", 3416), 2), discount_area("hit@5", 3416)
    (4.54, 5.0)
    """
    if candidates < 1:
        raise InputError(f"candidates: got {candidates}, expected the number of candidates of a query, 1 or more.")
    name, at, cut = metric.partition("@")
    if name in ("hit", "ndcg") and cut.isdigit() and int(cut) > 0:
        n = min(int(cut), candidates)
        return float(n) if name == "hit" else math.fsum(1 / math.log2(rank + 2) for rank in range(n))
    if name in ("mrr", "rr") and not at:
        return math.fsum(1 / (rank + 1) for rank in range(candidates))
    if name in ("auc", "auc_query", "auc_pooled") and not at:
        return candidates / 2
    raise InputError(f"metric: got {metric!r}, expected auc, mrr, ndcg@N or hit@N, as ndcg@10.")


def is_deep(metric: str) -> bool:
    """Whether the metric looks further down than the first places, as AUC and hit@50 do."""
    discount_area(metric, 1)  # refuses a metric that is not known
    name, _, cut = metric.partition("@")
    return int(cut) > DEEP if cut else name.startswith("auc")


def k_for_metric(metric: str, candidates: int, *, available: float | None = None) -> float:
    """K for a metric over ``candidates`` candidates: M / n_w, but at least `INFORMATION`.

    ``available`` bounds K: the most negatives that a row can have in training, by default M - 1. Pass it if
    validation ranks fewer candidates than training draws from.

    >>> round(k_for_metric("ndcg@10", 3416)), k_for_metric("ndcg@10", 37), k_for_metric("auc", 3416)
    (752, 36.0, 64.0)
    """
    wanted = max(candidates / discount_area(metric, candidates), float(INFORMATION))
    most = candidates - 1 if available is None else available
    return float(min(wanted, max(most, 1)))

r"""The share of the gain: how much of what the best K brings over K = 1 another K brings.

For AUC it is the envelope of effectiveness: :math:`(v(K) - v(1)) / (v(K^*) - v(1))`, held at 1 above K*. For the top
of a ranking among M candidates it is a saturating curve, :math:`(K - 1) / (K - 1 + c\,(M / n_w)^p)`, whose c and p were
fitted on measured runs. Both are forecasts, with their error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from negwise.errors import InputError
from negwise.theory.metric_k import discount_area, is_deep

if TYPE_CHECKING:
    from negwise.theory.estimate import Estimate

TOP_N_SCALE, TOP_N_POWER, TOP_N_ERROR = 2.44, 0.242, 0.14
"""c and p, and the root mean square error on a data set that was not fitted (``python -m evidence gain``)."""
AUC_ERROR = 0.15
"""The same for v's envelope, into which nothing was fitted."""
LEAST_CANDIDATES = 100
"""With fewer candidates, as in an impression, no share was measured."""
SHOWN_KS = (4.0, 20.0, 100.0, 500.0)


class Share(NamedTuple):
    """The share of the gain that ``k`` brings in ``metric``; ``low`` and ``high`` by the error of such forecasts."""

    k: float
    metric: str
    share: float
    low: float
    high: float


def share_of_gain(
    k: float, *, metric: str = "auc", candidates: int | None = None, estimate: Estimate | None = None
) -> Share:
    """Forecast how much of the gain of the best K over K = 1 a given ``k`` brings.

    AUC, and cut-offs beyond the first ten places, need an ``estimate``. A top-n ``metric`` needs the number of
    ``candidates`` that a query is ranked among.

    >>> share_of_gain(100, metric="ndcg@10", candidates=3416).share > 0.8
    True
    """
    if not k >= 1:
        raise InputError(f"k: got {k}, expected a number of negatives, 1 or more.")
    if is_deep(metric):
        if estimate is None or not estimate.determined:
            raise InputError(f"estimate: got none that determines K, and the share of {metric} follows from it.")
        return _share(k, metric, _envelope(estimate, k), AUC_ERROR)
    if candidates is None or candidates < LEAST_CANDIDATES:
        raise InputError(
            f"candidates: got {candidates}, expected the number of candidates of a query, {LEAST_CANDIDATES} or more: "
            "with fewer, as in an impression, no share was measured."
        )
    half = TOP_N_SCALE * (candidates / discount_area(metric, candidates)) ** TOP_N_POWER
    return _share(k, metric, (k - 1) / (k - 1 + half), TOP_N_ERROR)


def shares_of(estimate: Estimate, ks: Sequence[float] = SHOWN_KS) -> tuple[Share, ...]:
    """Shares of the gain in AUC at some K; none where the curves do not determine K."""
    return tuple(share_of_gain(k, estimate=estimate) for k in ks) if estimate.determined else ()


def _envelope(estimate: Estimate, k: float) -> float:
    ks, vs = np.array(estimate.curve.k), np.array(estimate.curve.v)
    risen = np.maximum.accumulate(vs)
    gain = risen[-1] - vs[0]
    return float((np.interp(np.log(k), np.log(ks), risen) - vs[0]) / gain) if gain > 0 else 1.0


def _share(k: float, metric: str, share: float, error: float) -> Share:
    return Share(float(k), metric, share, max(share - error, 0.0), min(share + error, 1.0))

r"""The 90% interval of K*: the standard errors of AUC propagated through the argmax.

There are three independent normal errors, each cut into slices of equal probability. One is of the label separation.
One shifts the whole validation curve: its evaluations score the same queries, so most of their errors are shared. One
is of the level at which T is read, for the errors that evaluations do not share; without it, the interval is too
narrow for a curve whose K* depends more on T than on its AUC. Every combination of slices has its own K*. The interval
is the middle 90% of them, in log K. Nothing is random.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri, owens_t

from negwise.theory.optimum import k_grid
from negwise.theory.separation import SQRT2, Floats, auc

COVERAGE = 0.90
N_SLICES = 31
_COARSE_PER_DECADE = 24


def auc_se_from_counts(separation: Floats, n_queries: Floats, n_pairs: Floats | None) -> Floats:
    r"""Standard errors (n,) of AUCs over queries, from separations (n,), under the Gaussian model.

    With m negatives for each query's positive, the share below it varies by
    :math:`\mathrm{Var}\,\Phi(x) + E[\Phi(1-\Phi)]/m = P_2 - P_1^2 + (P_1 - P_2)/m`, where
    :math:`P_K = P(\mu, K)`. At K = 2 that is a bivariate normal probability, so Owen's T gives it in closed form:
    :math:`P_2 = P_1 - 2\,T(\mu/\sqrt2, 1/\sqrt3)`. If the pairs were not counted, m = 1 is assumed: it gives the
    widest interval.
    """
    first = auc(separation)
    second = first - 2.0 * owens_t(separation / SQRT2, 1.0 / math.sqrt(3.0))
    per_query = 1.0 if n_pairs is None else n_pairs / n_queries
    return np.sqrt((second - first**2 + (first - second) / per_query) / n_queries)


def normal_deviations(se: float, n: int = N_SLICES) -> Floats:
    """Deviations (n,) of a normal with standard error ``se``: the medians of n slices of equal probability."""
    return se * ndtri((np.arange(n) + 0.5) / n)


def coarse_k_grid(max_k: float) -> Floats:
    """The grid of K for the optima under noise; coarser than the grid of the estimate."""
    return k_grid(max_k, _COARSE_PER_DECADE)


def k_interval(noisy_ks: Floats, k: float) -> tuple[float, float]:
    """The middle 90% of ``noisy_ks``, in log K, extended to ``k`` itself.

    Where K* is at its minimum over the separation, all of ``noisy_ks`` lie on one side of ``k``.
    """
    tail = (1.0 - COVERAGE) / 2.0
    low, high = np.exp(np.quantile(np.log(noisy_ks), [tail, 1.0 - tail]))
    return min(float(low), k), max(float(high), k)

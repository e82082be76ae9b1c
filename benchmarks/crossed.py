"""The interval of a paired difference whose seeds and queries could both have been others.

Seeds and queries are crossed: every seed is judged on the same queries. The variance of the mean over S seeds and Q
queries has three parts, of seeds, of queries and of the rest, estimated from the mean squares of a two-way layout, with
Satterthwaite's degrees of freedom. Where seeds make the difference it is Student's t over seeds, where queries make it,
that over queries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Contrast:
    """A mean difference, its standard error, degrees of freedom, and its 95% interval."""

    mean: float
    se: float
    df: float
    low: float
    high: float


def crossed_contrast(differences: Floats) -> Contrast:
    """The contrast of paired ``differences`` (S, Q), S seeds and Q queries, two or more of each."""
    seeds, queries = differences.shape
    mean, by_seed, by_query = differences.mean(), differences.mean(1), differences.mean(0)
    rest = differences - by_seed[:, None] - by_query[None, :] + mean
    of_seeds, of_queries = queries * by_seed.var(ddof=1), seeds * by_query.var(ddof=1)
    of_rest = float((rest**2).sum()) / ((seeds - 1) * (queries - 1))
    total = of_seeds + of_queries - of_rest
    if total <= max(of_seeds, of_queries):  # a negative component: the larger of the two alone
        total, df = max((of_seeds, seeds - 1.0), (of_queries, queries - 1.0))
    else:
        parts = of_seeds**2 / (seeds - 1) + of_queries**2 / (queries - 1) + of_rest**2 / ((seeds - 1) * (queries - 1))
        df = total**2 / parts
    return _contrast(float(mean), float(np.sqrt(total / differences.size)), float(df))


def fold_contrast(differences: Floats) -> Contrast:
    """The contrast of the means (F,) of folds, each with users of its own: Student's t."""
    return _contrast(
        float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(len(differences))), len(differences) - 1.0
    )


def _contrast(mean: float, se: float, df: float) -> Contrast:
    reach = float(stats.t.ppf(0.975, df)) * se
    return Contrast(mean, se, df, mean - reach, mean + reach)

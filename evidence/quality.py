"""The quality of an arm on test, and how sure a difference between two arms is.

Where all seeds share one test split, seeds and queries are crossed, and the interval is that of
`benchmarks.crossed.crossed_contrast`. Where a seed holds out a fold of users, it is Student's t over folds. S seeds,
Q queries, F folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.crossed import Contrast, crossed_contrast, fold_contrast
from negwise.errors import InputError
from negwise.metrics import Ranks, hit_rate, ndcg, wins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measured:
    """A metric of one arm, or a difference of two: ``seeds`` (S,), and either ``values`` (S, Q) or ``folds`` (S,)."""

    seeds: Floats
    values: Floats | None = None
    folds: Ints | None = None

    @property
    def mean(self) -> float:
        return float(self.seeds.mean())

    def __sub__(self, other: Measured) -> Measured:
        return self.plus(other, -1.0)

    def plus(self, other: Measured, weight: float) -> Measured:
        """This and ``weight`` times the other, seed by seed and query by query."""
        values = None
        if self.values is not None and other.values is not None:
            values = self.values + weight * other.values
        return Measured(self.seeds + weight * other.seeds, values, self.folds)

    @cached_property
    def contrast(self) -> Contrast:
        """The mean with its 95% interval: seeds and queries crossed, or folds; of one seed, queries alone."""
        if self.values is not None:
            return crossed_contrast(self.values) if len(self.values) > 1 else fold_contrast(self.values[0])
        assert self.folds is not None
        return fold_contrast(np.array([self.seeds[self.folds == fold].mean() for fold in np.unique(self.folds)]))

    @property
    def interval(self) -> tuple[float, float]:
        return self.contrast.low, self.contrast.high

    @property
    def p(self) -> float:
        """Two-sided, that the true value is 0."""
        if self.contrast.se == 0:
            return float(self.contrast.mean == 0)
        return float(2 * stats.t.sf(abs(self.contrast.mean) / self.contrast.se, self.contrast.df))

    @property
    def sign(self) -> int:
        """1 or -1 where the interval excludes 0, else 0."""
        return int(self.interval[0] > 0) - int(self.interval[1] < 0)


def ratio(part: Measured, whole: Measured) -> Contrast:
    """part / whole with its interval, to first order: that of the mean of ``part - share * whole``, over ``whole``."""
    share = part.mean / whole.mean
    rest = part.plus(whole, -share).contrast
    reach = (rest.high - rest.mean) / abs(whole.mean)
    return Contrast(share, rest.se / abs(whole.mean), rest.df, share - reach, share + reach)


def measure(
    ranks: Mapping[tuple[str, int], Ranks], rules: Sequence[str], seeds: Sequence[int], metric: str, folds: int | None
) -> dict[str, Measured]:
    """Every arm on the same queries. A seed's test fold is seed modulo ``folds``; None: all share one test split."""
    found = {}
    for rule in rules:
        rows = [values_of(ranks[rule, seed], metric) for seed in seeds]
        means = np.array([row.mean() for row in rows])
        number = None if folds is None else np.array([seed % folds for seed in seeds])
        found[rule] = Measured(means, np.stack(rows) if folds is None else None, number)
    return found


def values_of(ranks: Ranks, metric: str) -> Floats:
    """One value for each query (Q,) whose mean is the metric, as in `negwise.metrics.evaluate`."""
    scored = ranks.scored
    positives, negatives = ranks.positives[scored], ranks.negatives[scored]
    if metric == "auc":  # a mean over positives: a query with several has so many times the weight
        return wins(ranks)[scored] / negatives * (len(positives) / positives.sum())
    name, _, cutoff = metric.partition("@")
    functions = {"ndcg": ndcg, "hit": hit_rate}
    if name not in functions or not cutoff.isdigit():
        raise InputError(f"metric: got {metric!r}, expected auc, ndcg@n or hit@n.")
    return functions[name](ranks, int(cutoff))[scored]


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the order given."""
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(np.asarray(p, float)[order] * (len(p) - np.arange(len(p))))
    found = np.empty(len(p))
    found[order] = np.minimum(scaled, 1.0)
    return [float(value) for value in found]

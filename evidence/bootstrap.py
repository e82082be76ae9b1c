"""How sure a difference between arms is, when both the seeds and the test queries could have been others.

Every draw takes folds with replacement, seeds of each with replacement, and test queries of each with replacement: the
same queries for every arm, and for every seed of the fold. Without folds all seeds share one test split. Seeds and
queries are crossed or nested, and redrawing both errs on the safe side as to queries (Owen 2007, the pigeonhole
bootstrap). As to seeds it does not: so few of them, redrawn, differ less than seeds do. Where seeds make nearly all the
difference, an interval of 95% covers 75, 85 and 90% with 3, 5 and 10 of them; there Student's t is right, which is too
narrow where queries make it. So both stand side by side. Two seeds of one fold held out the same users,
and say less than two folds. Q queries, S seeds, F folds, R draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from negwise.errors import InputError
from negwise.metrics import Ranks, hit_rate, ndcg, wins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
DRAWS = 10_000
AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class Measured:
    """A metric of one arm: ``seeds`` (S,) as measured, ``draws`` (R,) of its mean, and the fold (S,) of each seed."""

    seeds: Floats
    draws: Floats
    folds: Ints | None = None

    @property
    def mean(self) -> float:
        return float(self.seeds.mean())

    def __sub__(self, other: Measured) -> Measured:
        return Measured(self.seeds - other.seeds, self.draws - other.draws, self.folds)

    @property
    def apart(self) -> Floats:
        """What may count as independent: the seeds, or the mean of each fold where folds differ."""
        if self.folds is None or len(set(self.folds.tolist())) == 1:
            return self.seeds
        return np.array([self.seeds[self.folds == fold].mean() for fold in np.unique(self.folds)])

    @property
    def error(self) -> float:
        """The standard error of the mean, from seeds or folds."""
        return float(self.apart.std(ddof=1) / np.sqrt(len(self.apart)))

    @property
    def interval(self) -> tuple[float, float]:
        """95%, from the draws."""
        low, high = np.quantile(self.draws, (0.025, 0.975))
        return float(low), float(high)

    @property
    def student(self) -> tuple[float, float]:
        """95%, from seeds or folds alone by Student's t."""
        return student(self.apart)

    @property
    def p(self) -> float:
        """Two-sided, that the true value is 0."""
        count = len(self.draws) + 1
        below, above = (1 + (self.draws <= 0).sum()) / count, (1 + (self.draws >= 0).sum()) / count
        return float(min(1.0, 2 * min(below, above)))


def student(seeds: Floats) -> tuple[float, float]:
    """95% interval of the mean of these seeds (S,), by Student's t."""
    n, mean = len(seeds), float(seeds.mean())
    reach = float(stats.t.ppf(0.975, n - 1) * seeds.std(ddof=1) / np.sqrt(n))
    return mean - reach, mean + reach


def parts_of(ranks: Ranks, metric: str) -> tuple[Floats, Floats]:
    """y and x (Q,) of the queries that count; the metric is sum of y / sum of x, as in `negwise.metrics.evaluate`."""
    scored = ranks.scored
    positives, negatives = ranks.positives[scored], ranks.negatives[scored]
    if metric == "auc":
        return wins(ranks)[scored] / negatives, positives.astype(float)
    name, _, cutoff = metric.partition("@")
    functions = {"ndcg": ndcg, "hit": hit_rate}
    if name not in functions or not cutoff.isdigit():
        raise InputError(f"metric: got {metric!r}, expected auc, ndcg@n or hit@n.")
    return functions[name](ranks, int(cutoff))[scored], np.ones(int(scored.sum()))


def measure(
    ranks: Mapping[tuple[str, int], Ranks],
    rules: Sequence[str],
    seeds: Sequence[int],
    metric: str,
    *,
    folds: int | None,
    draws: int = DRAWS,
) -> dict[str, Measured]:
    """Every arm with its draws, all of the same seeds and queries. A seed's test fold is seed modulo ``folds``."""
    y = {seed: np.stack([parts_of(ranks[rule, seed], metric)[0] for rule in rules], axis=1) for seed in seeds}  # (Q, A)
    x = {seed: parts_of(ranks[rules[0], seed], metric)[1] for seed in seeds}
    fold = np.array([seed % (folds or 1) for seed in seeds])
    random = np.random.default_rng(0)
    found: list[Floats] = []  # (r, S, A) a chunk
    for start in range(0, draws, AT_ONCE):
        count = min(AT_ONCE, draws - start)
        weights: dict[int, Floats] = {}
        chunk = []
        for seed, where in zip(seeds, fold.tolist(), strict=True):
            if where not in weights:
                weights[where] = _redrawn(random, count, len(x[seed]))
            chunk.append((weights[where] @ y[seed]) / (weights[where] @ x[seed])[:, None])
        found.append(np.stack(chunk, axis=1))
    values = np.concatenate(found)  # (R, S, A)
    means = np.einsum("rs,rsa->ra", _chosen(random, draws, fold), values)
    whole = np.stack([y[seed].sum(0) / x[seed].sum() for seed in seeds])  # (S, A)
    return {rule: Measured(whole[:, at], means[:, at], fold) for at, rule in enumerate(rules)}


def _chosen(random: np.random.Generator, draws: int, fold: Ints) -> Floats:
    """(draws, S) the weight of each seed: folds with replacement, and of each as many of its seeds as it has."""
    names = np.unique(fold)
    often = random.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)  # (R, F)
    counts = np.zeros((draws, len(fold)))
    for at, name in enumerate(names):
        here = np.flatnonzero(fold == name)
        counts[:, here] = random.multinomial(len(here) * often[:, at], np.full(len(here), 1 / len(here)))
    chosen: Floats = counts / counts.sum(1, keepdims=True)
    return chosen


def _redrawn(random: np.random.Generator, draws: int, n: int) -> Floats:
    """(draws, n) how often each of n queries is taken."""
    taken = random.integers(0, n, size=(draws, n)) + n * np.arange(draws)[:, None]
    return np.bincount(taken.ravel(), minlength=draws * n).reshape(draws, n).astype(np.float64)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's corrected p-values, in the order given."""
    order = np.argsort(p, kind="stable")
    scaled = np.maximum.accumulate(np.asarray(p, float)[order] * (len(p) - np.arange(len(p))))
    found = np.empty(len(p))
    found[order] = np.minimum(scaled, 1.0)
    return [float(value) for value in found]

"""How sure a difference between arms is, when both the seeds and the test queries could have been others.

Every draw takes seeds with replacement, and test queries with replacement: the same queries for every arm, and for
every seed too where seeds share a test split; where each seed has a fold of its own, that fold's. Seeds and queries are
crossed or nested, and redrawing both errs on the safe side (Owen 2007, the pigeonhole bootstrap). Q queries, S seeds,
R draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from negwise.errors import InputError
from negwise.metrics import Ranks, queries

Floats = NDArray[np.float64]
DRAWS = 10_000
AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class Measured:
    """A metric of one arm: ``seeds`` (S,) as measured, ``draws`` (R,) of its mean over seeds."""

    seeds: Floats
    draws: Floats

    @property
    def mean(self) -> float:
        return float(self.seeds.mean())

    def __sub__(self, other: Measured) -> Measured:
        return Measured(self.seeds - other.seeds, self.draws - other.draws)

    @property
    def interval(self) -> tuple[float, float]:
        """95%, from the draws."""
        low, high = np.quantile(self.draws, (0.025, 0.975))
        return float(low), float(high)

    @property
    def student(self) -> tuple[float, float]:
        """95%, from the seeds alone by Student's t."""
        return student(self.seeds)

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
        return queries.wins(ranks)[scored] / negatives, positives.astype(float)
    name, _, cutoff = metric.partition("@")
    functions = {"ndcg": queries.ndcg, "hit": queries.hit_rate}
    if name not in functions or not cutoff.isdigit():
        raise InputError(f"metric: got {metric!r}, expected auc, ndcg@n or hit@n.")
    return functions[name](ranks, int(cutoff))[scored], np.ones(int(scored.sum()))


def measure(
    ranks: Mapping[tuple[str, int], Ranks],
    rules: Sequence[str],
    seeds: Sequence[int],
    metric: str,
    *,
    nested: bool,
    draws: int = DRAWS,
) -> dict[str, Measured]:
    """Every arm with its draws, all of the same seeds and queries. ``nested``: each seed has queries of its own."""
    y = {seed: np.stack([parts_of(ranks[rule, seed], metric)[0] for rule in rules], axis=1) for seed in seeds}  # (Q, A)
    x = {seed: parts_of(ranks[rules[0], seed], metric)[1] for seed in seeds}
    random = np.random.default_rng(0)
    found: list[Floats] = []  # (r, S, A) a chunk
    for start in range(0, draws, AT_ONCE):
        count = min(AT_ONCE, draws - start)
        weights = None if nested else _redrawn(random, count, len(x[seeds[0]]))
        chunk = []
        for seed in seeds:
            own = _redrawn(random, count, len(x[seed])) if weights is None else weights
            chunk.append((own @ y[seed]) / (own @ x[seed])[:, None])
        found.append(np.stack(chunk, axis=1))
    values = np.concatenate(found)  # (R, S, A)
    chosen = random.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=draws) / len(seeds)
    means = np.einsum("rs,rsa->ra", chosen, values)
    whole = np.stack([y[seed].sum(0) / x[seed].sum() for seed in seeds])  # (S, A)
    return {rule: Measured(whole[:, at], means[:, at]) for at, rule in enumerate(rules)}


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

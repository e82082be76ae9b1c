"""Does the 90% interval hold? Pilots are simulated whole, and K* of the population curves must lie inside.

Positives and negatives are Gaussian; at every evaluation the same items are scored again, with correlation 0.8
from one evaluation to another, as a model's scores of a fixed validation set are. T, the label separation and the
decision whether the pilot converged are all taken anew from each noisy pilot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import negwise as nw
from benchmarks.table import Row

Floats = NDArray[np.float64]

CORRELATION = 0.8
NEGATIVES = 100
EVALUATIONS = 20
END = 5.0  # in time constants: a pilot that has converged


@dataclass(frozen=True)
class Coverage:
    """How often the interval held the truth, among the replications that were ``ok``."""

    inside: int
    ok: int
    verdicts: dict[str, int]

    @property
    def share(self) -> float:
        return self.inside / self.ok


def coverage(mu: float, queries: int, replications: int, seed: int, ratio: float = 0.9) -> Coverage:
    """Simulate pilots with label separation ``mu`` whose validation reaches ``ratio`` of it."""
    steps = np.linspace(0, END, EVALUATIONS + 1)[1:]
    labels = mu * (1 - np.exp(-steps))
    truth = nw.optimal_k(nw.auc(labels), nw.auc(ratio * labels), steps=steps).k
    inside, verdicts = 0, Counter[str]()
    for replication in range(replications):
        rng = np.random.default_rng([seed, queries, replication])
        (train, train_se), (val, val_se) = pilot(labels, queries, rng), pilot(ratio * labels, queries, rng)
        found = nw.optimal_k(train, val, steps=steps, train_se=train_se, val_se=val_se)
        verdicts[found.verdict] += 1
        if found.verdict == "ok" and found.interval is not None:
            inside += found.interval[0] <= truth <= found.interval[1]
    return Coverage(inside, verdicts["ok"], dict(verdicts))


def pilot(separations: Floats, queries: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """AUC (T,) and its standard error (T,) at each evaluation of the same queries and negatives."""
    positives, negatives = rng.standard_normal(queries), rng.standard_normal((queries, NEGATIVES), dtype=np.float32)
    common, fresh = np.sqrt(CORRELATION), np.sqrt(1 - CORRELATION)
    shares = np.empty((separations.size, queries))
    for t, mu in enumerate(separations):
        scores = mu + common * positives + fresh * rng.standard_normal(queries)
        others = common * negatives + fresh * rng.standard_normal(negatives.shape, dtype=np.float32)
        shares[t] = (others < scores[:, None]).mean(axis=1)
    return shares.mean(axis=1), shares.std(axis=1, ddof=1) / np.sqrt(queries)


def run(replications: int = 300) -> list[Row]:
    """The share covered, and the share that was ``ok``, for three separations and two sizes."""
    rows = []
    for mu in (1.0, 2.4, 4.0):
        for queries in (500, 5000):
            found = coverage(mu, queries, replications, seed=7)
            work = f"90% interval, separation {mu:g}, {queries:,} queries"
            verdicts = ", ".join(f"{name} {times}" for name, times in sorted(found.verdicts.items()))
            rows.append(Row(work, f"covered at least ({verdicts})", 100 * found.share, 85.0, "higher", "%"))
            rows.append(Row(work, "covered at most", 100 * found.share, 99.0, "lower", "%"))
    return rows

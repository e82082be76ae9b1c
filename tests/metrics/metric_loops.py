"""Ragged groups for the metric tests, and the metrics themselves as plain loops over every order of the ties."""

from __future__ import annotations

import itertools
import math

import numpy as np


def ragged(seed=0, queries=60, largest=9, levels=None, dtype=np.float64):
    """Scores, labels, offsets; ``levels`` scores in all (so that they tie), and queries of every kind, empty too."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, largest + 1, queries)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    total = int(offsets[-1])
    scores = rng.normal(size=total) if levels is None else rng.integers(0, levels, total) - levels / 2
    return scores.astype(dtype), rng.random(total) < 0.3, offsets


def split(scores, labels, offsets):
    for low, high in itertools.pairwise(offsets.tolist()):
        yield scores[low:high], labels[low:high]


def scored(scores, labels, offsets):
    """The queries with a positive and a negative."""
    return [(s, y) for s, y in split(scores, labels, offsets) if 0 < y.sum() < len(y)]


def wins(s, y):
    return sum((p > n) + 0.5 * (p == n) for p in s[y] for n in s[~y])


def orders(s):
    """All orders of the candidates that sort the scores from high to low: one per way to break the ties."""
    blocks = [np.flatnonzero(s == value).tolist() for value in np.unique(s)[::-1]]
    for parts in itertools.product(*(itertools.permutations(block) for block in blocks)):
        yield list(itertools.chain.from_iterable(parts))


def over_ties(metric, s, y):
    return float(np.mean([metric([bool(y[i]) for i in order]) for order in orders(s)]))


def mind_mrr(ranked):
    return sum(1 / (r + 1) for r, hit in enumerate(ranked) if hit) / sum(ranked)


def first_rr(ranked):
    return 1 / (ranked.index(True) + 1)


def ndcg(n):
    def dcg(ranked):
        return sum(1 / math.log2(r + 2) for r, hit in enumerate(ranked[:n]) if hit)

    return lambda ranked: dcg(ranked) / dcg(sorted(ranked, reverse=True))


def hit(n):
    return lambda ranked: float(any(ranked[:n]))

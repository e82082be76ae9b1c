"""Per-impression metrics of MIND-shaped impressions, beside the loop that everyone writes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row, seconds
from negwise.metrics import evaluate, rank

IMPRESSIONS = 100_000
LOOPED = 4_000
"""Impressions that the loop is timed on; its time grows with their number and nothing else."""

Impressions = tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64]]


def impressions(count: int, seed: int = 0) -> Impressions:
    """Scores, clicks and offsets: about 37 candidates each, from 2 to 300 of them, about 1.5 clicked."""
    rng = np.random.default_rng(seed)
    clicks = np.minimum(1 + rng.poisson(0.5, count), 6)
    sizes = clicks + np.clip(rng.lognormal(3.1, 1.0, count), 1, 294).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    query = np.repeat(np.arange(count), sizes)
    shuffled = np.lexsort((rng.random(len(query)), query))
    clicked = np.empty(len(query), dtype=bool)
    clicked[shuffled] = np.arange(len(query)) - offsets[query] < clicks[query]
    scores = rng.standard_normal(len(query), dtype=np.float32) + 0.5 * clicked.astype(np.float32)
    return scores, clicked, offsets


def loop(scores: NDArray[Any], labels: NDArray[Any], offsets: NDArray[Any]) -> dict[str, float]:
    """The usual evaluation: scikit-learn's AUC and MIND's MRR and nDCG, one impression after the other."""
    from sklearn.metrics import roc_auc_score

    values = []
    for low, high in pairwise(offsets.tolist()):
        score, label = scores[low:high], labels[low:high]
        ranked = label[np.argsort(score)[::-1]]
        values.append(
            (
                roc_auc_score(label, score),
                np.sum(ranked / np.arange(1, len(ranked) + 1)) / np.sum(ranked),
                _dcg(ranked, 5) / _dcg(np.sort(label)[::-1], 5),
                _dcg(ranked, 10) / _dcg(np.sort(label)[::-1], 10),
            )
        )
    names = ("auc_query", "mrr", "ndcg@5", "ndcg@10")
    return dict(zip(names, np.mean(values, axis=0).tolist(), strict=True))


def _dcg(ranked: NDArray[Any], n: int) -> float:
    gains = ranked[:n]
    return float(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


def run() -> list[Row]:
    scores, labels, offsets = impressions(IMPRESSIONS)
    end = int(offsets[LOOPED])
    part = scores[:end], labels[:end], offsets[: LOOPED + 1]
    ours, theirs = evaluate(rank(*part)), loop(*part)
    for name, value in theirs.items():
        np.testing.assert_allclose(ours[name].value, value, rtol=1e-6, err_msg=name)

    whole = seconds(
        {"all": lambda: evaluate(rank(scores, labels, offsets)), "sort": lambda: np.sort(scores)}, repeats=7
    )
    looped = seconds({"loop": lambda: loop(*part)}, repeats=3)["loop"] * IMPRESSIONS / LOOPED
    work = f"AUC, MRR, nDCG of {IMPRESSIONS // 1000}k impressions, {len(scores) / 1e6:.1f}M candidates"
    return [
        Row(
            work,
            f"speed over a scikit-learn loop (timed on {LOOPED:,} impressions and scaled to {IMPRESSIONS:,})",
            looped / whole["all"],
            bar=50,
        ),
        Row(work, "time", whole["all"] * 1e3, better="lower", unit="ms"),
        Row(work, "time over that of one numpy.sort of the scores", whole["all"] / whole["sort"], better="lower"),
    ]

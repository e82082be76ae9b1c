"""Scores of positives and negatives as a trained model gives them, against the Gaussians that the framework assumes.

Each query's scores are centred and scaled by the mean and the standard deviation of its own negatives, so that the
framework says: negatives are N(0, 1), positives N(mu', 1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.datasets import TaskData
from negwise.records import CONFIG, RunConfig, decode, read_record
from negwise.requests import TrainRequest
from negwise.tasks import load_data, make_model
from negwise.training import load_weights

QUERIES, CANDIDATES = 300, 2000
LOW, HIGH, WIDTH = -6.0, 10.0, 0.25
FEWEST = 5
"""Negatives below which a query has no spread worth dividing by."""

Floats = NDArray[np.float64]


def score_histogram(run: Path) -> dict[str, Any]:
    """Counts of standardised scores on the validation split of a finished run; the outer bins take what lies beyond."""
    request = decode(TrainRequest, read_record(RunConfig, run / CONFIG).run, str(run / CONFIG))
    task = load_data(request)
    positives, negatives = standardised(task, load_weights(make_model(request, task), run))
    edges = np.arange(LOW, HIGH + WIDTH / 2, WIDTH)

    def counts(values: Floats) -> list[int]:
        return np.histogram(np.clip(values, LOW, HIGH - 1e-9), edges)[0].tolist()

    return {
        "low": LOW,
        "width": WIDTH,
        "positives": counts(positives),
        "negatives": counts(negatives),
        "positive_mean": float(positives.mean()),
        "positive_std": float(positives.std()),
        "positive_skew": _skew(positives),
        "negative_skew": _skew(negatives),
    }


def standardised(task: TaskData, model: Any) -> tuple[Floats, Floats]:
    """Scores of positives and of negatives of some validation queries."""
    random = np.random.default_rng(0)
    chosen = np.sort(random.permutation(len(task.val))[:QUERIES])
    candidates = np.arange(*task.val.candidates)
    if task.impressions is None and len(candidates) > CANDIDATES:
        candidates = np.sort(random.choice(candidates, CANDIDATES, replace=False))
    negatives = _negatives(task, chosen, candidates)
    asked = task.val.positives[chosen]
    ids = np.unique(np.concatenate((asked, *negatives))).astype(np.int64)  # lists of large data have int32
    scores = _scores(model, task, chosen, ids)  # (Q, N)
    found: tuple[list[Floats], list[Floats]] = ([], [])
    for row, positive, others in zip(scores, asked, negatives, strict=True):
        own = row[np.searchsorted(ids, others)]
        if len(others) < FEWEST or own.std() == 0:
            continue
        found[0].append((row[np.searchsorted(ids, [positive])] - own.mean()) / own.std())
        found[1].append((own - own.mean()) / own.std())
    return np.concatenate(found[0]), np.concatenate(found[1])


def _scores(model: Any, task: TaskData, queries: NDArray[np.int64], ids: NDArray[np.int64]) -> Floats:
    """Scores (Q, N) of validation queries and candidates, both by number, dropout off."""
    model.eval()

    def item_vectors(wanted: Tensor) -> Tensor:
        return model.encode_candidates(wanted.flatten()).view(*wanted.shape, -1)

    with torch.no_grad():
        vectors = model.encode_queries(task.val.batch(queries).query, item_vectors)
        return (vectors @ model.encode_candidates(torch.from_numpy(ids)).T).double().numpy()


def _negatives(task: TaskData, queries: NDArray[np.int64], candidates: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    groups = task.val.groups[queries]
    if task.negatives is not None and task.impressions is not None:
        return [task.negatives[g] for g in groups]
    return [np.setdiff1d(candidates, task.eval_exclusions[g]) for g in groups]


def _skew(values: Floats) -> float:
    return float(((values - values.mean()) ** 3).mean() / values.std() ** 3)

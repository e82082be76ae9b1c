"""How a task is evaluated: among what was shown where that is known, else by ranking the whole catalogue."""

from __future__ import annotations

from typing import Any

import numpy as np

from negwise import metrics
from negwise.datasets import Examples, TaskData
from negwise.errors import InputError
from negwise.metrics.ranking import EvaluationSplit, FullRanking, ImpressionRanking, rank_positives, subset

ALL = 2**62


def evaluation_splits(data: TaskData, max_queries: int | None = None) -> dict[str, EvaluationSplit]:
    """How to evaluate ``train``, ``val`` and ``test`` of ``data``.

    Training is evaluated on a fixed subset as large as validation; ``max_queries`` bounds all three.
    """
    if max_queries is not None and max_queries < 2:
        raise InputError(f"queries: got {max_queries}, expected 2 or more, as one has no standard error.")
    whole = {name: _whole(data, getattr(data, name)) for name in ("train", "val", "test")}
    size = {"train": len(whole["val"].chosen)}
    return {name: subset(split, min(size.get(name, ALL), max_queries or ALL)) for name, split in whole.items()}


def evaluate(model: Any, split: EvaluationSplit, cutoffs: tuple[int, ...] = (5, 10)) -> metrics.MetricSummary:
    """Every metric of ``model`` on ``split``, dropout off."""
    return metrics.evaluate(rank_positives(model, split), cutoffs)


def _whole(data: TaskData, examples: Examples) -> EvaluationSplit:
    if data.impressions is None or data.labels is None:
        return FullRanking(examples, np.arange(len(examples)), *examples.candidates, data.eval_exclusions)
    groups, chosen = np.unique(examples.groups, return_index=True)
    return ImpressionRanking(examples, chosen, groups, data.impressions, data.labels)

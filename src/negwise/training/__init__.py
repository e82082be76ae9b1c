"""One training loop for every model, sampler, rule and data set.

::

    fit(
        "runs/first", model, task.train,
        n_items=task.n_items, sampler=Uniform(task.n_items), rule=AnsK(20),
        settings=Settings(steps=1000, batch_size=32), judged=judged(task), data_digest=task.digest,
    )

The same call again goes on where the last one was stopped or killed.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")

from negwise.training.batches import EpochOrder, Examples
from negwise.training.checkpoint import CheckpointError, load_weights
from negwise.training.evaluate import evaluate
from negwise.training.trainer import fit
from negwise.training.judging import EvaluationSplit, FullRanking, ImpressionRanking, judged, subset
from negwise.training.progress import Display
from negwise.training.run import ShouldStop
from negwise.training.settings import Settings
from negwise.training.stopping import Stopped

__all__ = [
    "CheckpointError",
    "Display",
    "EpochOrder",
    "EvaluationSplit",
    "Examples",
    "FullRanking",
    "ImpressionRanking",
    "Settings",
    "ShouldStop",
    "Stopped",
    "evaluate",
    "fit",
    "judged",
    "load_weights",
    "subset",
]

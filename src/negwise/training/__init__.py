"""One training loop for every model, sampler, loss, rule and data set.

::

    fit(
        "runs/first", model, data.train,
        n_items=data.n_items, sampler=Uniform(data.n_items), rule=AnsK(20),
        settings=Settings(steps=1000, batch_size=32), splits=evaluation_splits(data), data_digest=data.digest,
    )

The same call again resumes a run that was stopped or killed.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")

from negwise.training.batches import EpochOrder, TrainingExamples
from negwise.training.checkpoint import CheckpointError, load_weights
from negwise.training.journal import Display
from negwise.training.launch import Stopped
from negwise.training.loop import ShouldStop
from negwise.training.run_folder import config_changes, read_ranks
from negwise.training.settings import Settings
from negwise.training.trainer import OpenRun, fit, open_run

__all__ = [
    "CheckpointError",
    "Display",
    "EpochOrder",
    "OpenRun",
    "Settings",
    "ShouldStop",
    "Stopped",
    "TrainingExamples",
    "config_changes",
    "fit",
    "load_weights",
    "open_run",
    "read_ranks",
]

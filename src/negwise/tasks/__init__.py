"""What a run is made of: the public functions that put data, sampler, loss, model and evaluation together."""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")

from negwise.tasks.recipes import resolve_device, with_recipe
from negwise.tasks.sampler_choice import make_sampler, max_negatives
from negwise.tasks.task import (
    Task,
    TokenizedTexts,
    copy_task,
    evaluate_model,
    evaluation_splits,
    load_data,
    make_loss,
    make_model,
    make_task,
    model_content,
    query_candidates,
    tokenize,
)

__all__ = [
    "Task",
    "TokenizedTexts",
    "copy_task",
    "evaluate_model",
    "evaluation_splits",
    "load_data",
    "make_loss",
    "make_model",
    "make_sampler",
    "make_task",
    "max_negatives",
    "model_content",
    "query_candidates",
    "resolve_device",
    "tokenize",
    "with_recipe",
]

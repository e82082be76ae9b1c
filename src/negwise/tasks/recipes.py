"""Recipes: how each model is trained unless the user says otherwise, on a GPU and on a CPU; and the paper's settings.

A recipe gives a value to every option of `TrainRequest` that is None. ``tuned`` is what we would use ourselves. Of its
values only learning rates were compared with others in the same time, and those of some models with one seed. As a
whole it was compared with the settings before it, which it does not always beat (docs/log.md). ``paper`` is the paper's
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from negwise.datasets import HISTORY, DataReport, available_tasks, read
from negwise.errors import InputError
from negwise.models import PAPER
from negwise.models.hyperparameters import BERT4REC_MAX_LENGTH, BODY_WORDS, TITLE_WORDS
from negwise.requests import TASK_OF, TrainRequest
from negwise.requests.training_requests import POOL

Fields = Mapping[str, Any]

MODELS = {
    "cpu": {"pairs": "siamese-cnn", "impressions": "nrms", "sequences": "bert4rec"},
    "cuda": {"pairs": "siamese-transformer", "impressions": "nrms", "sequences": "bert4rec"},
}
"""The model for each kind of data."""
METRICS = {"pairs": "hit@5", "impressions": "ndcg@10", "sequences": "ndcg@10"}
"""The metric that counts, for each kind of data."""

_LENGTHS: Fields = {"title_words": TITLE_WORDS, "body_words": BODY_WORDS}
_ALWAYS: Fields = {**_LENGTHS, "warmup": 100, "decay": 0.5, "weight_decay": 0.0}
_SHORT_TEXTS: Fields = {"title_words": 20, "body_words": 40, "batch_size": 128}
_SHORT_HISTORIES: Fields = {"title_words": 20, "history": 30, "batch_size": 64, "epochs": 8}
_SHARP: Fields = {"temperature": 0.05}
TUNED: Mapping[str, Mapping[str, Fields]] = {
    "cpu": {
        "siamese-cnn": {**_SHORT_TEXTS, "body_words": 80, "learning_rate": 9e-3, "epochs": 9, "settings": _SHARP},
        "siamese-lstm": {**_SHORT_TEXTS, "learning_rate": 1e-3, "epochs": 9, "settings": _SHARP},
        "siamese-transformer": {**_SHORT_TEXTS, "learning_rate": 6e-4, "epochs": 9, "settings": _SHARP},
        "nrms": {**_SHORT_HISTORIES, "learning_rate": 1e-3, "settings": {"heads": 8, "embedding": 128, "pooling": 64}},
        "naml": {**_SHORT_HISTORIES, "learning_rate": 1e-3},
        "lstur": {**_SHORT_HISTORIES, "learning_rate": 1e-3},
        "bert4rec": {"batch_size": 128, "learning_rate": 1e-3, "epochs": 60, "history": 50},
    },
    "cuda": {
        "siamese-cnn": {"batch_size": 256, "learning_rate": 9e-3, "epochs": 12, "settings": _SHARP},
        "siamese-lstm": {"batch_size": 256, "learning_rate": 3e-3, "epochs": 24, "settings": _SHARP},
        "siamese-transformer": {
            "batch_size": 256,
            "learning_rate": 9e-4,
            "epochs": 24,
            "settings": {"temperature": 0.03},
        },
        "nrms": {"batch_size": 128, "learning_rate": 3e-4, "epochs": 8},
        "naml": {"batch_size": 128, "learning_rate": 3e-4, "epochs": 8},
        "lstur": {"batch_size": 128, "learning_rate": 3e-4, "epochs": 8},
        "bert4rec": {"batch_size": 256, "learning_rate": 1e-3, "epochs": 200, "settings": {"heads": 4}},
    },
}
"""Values by device and model; `_ALWAYS` has those that are the same for all."""


def with_recipe(request: TrainRequest, kind: str | None = None) -> TrainRequest:
    """``request`` with a value for every option that was left to the recipe; settings of the model are merged.

    ``kind`` of data ("pairs", "impressions" or "sequences") chooses the model where none is given; None looks.
    """
    device = resolve_device(request.device)
    model = request.model or MODELS[device][kind or _look(request)]
    if model not in TASK_OF:
        raise InputError(f"model: got {model!r}, expected one of {', '.join(TASK_OF)}.")
    recipe = paper_recipe(model) if request.recipe == "paper" else tuned_recipe(model, device)
    if request.steps is not None:  # instead of epochs
        recipe.pop("epochs")
    settings = {**recipe.pop("settings", {}), **request.settings}
    missing = {name: value for name, value in recipe.items() if getattr(request, name) is None}
    evaluate_training = request.k == "1" if request.evaluate_training is None else request.evaluate_training
    return replace(request, model=model, settings=settings, evaluate_training=evaluate_training, **missing)


def tuned_recipe(model: str, device: str) -> dict[str, Any]:
    """What we would use on "cpu" or "cuda"."""
    kind = TASK_OF[model]
    found = {
        **_ALWAYS,
        "history": BERT4REC_MAX_LENGTH if kind == "sequences" else HISTORY,
        "metric": METRICS[kind],
        "precision": "bf16-mixed" if device == "cuda" else "32-true",
        **TUNED[device][model],
    }
    return dict(found)


def paper_recipe(model: str) -> dict[str, Any]:
    """The paper's table, a constant learning rate, and AUC as the metric."""
    paper = PAPER[model]
    kind = TASK_OF[model]
    return {
        **({"pool": POOL} if kind == "pairs" else {}),
        "batch_size": paper.batch_size,
        "learning_rate": paper.learning_rate,
        "epochs": paper.epochs,
        "warmup": 0,
        "decay": 0.0,
        "weight_decay": 0.0,
        "title_words": TITLE_WORDS,
        "body_words": BODY_WORDS,
        "history": BERT4REC_MAX_LENGTH if kind == "sequences" else HISTORY,
        "precision": "32-true",
        "metric": "auc",
    }


def rate_schedule(warmup: int, decay: float, steps: int) -> Callable[[float], float] | None:
    """The scale of the learning rate at a fraction of training; None where it is constant.

    It rises over the first ``warmup`` steps, at most a tenth of all, holds, and falls to 0 over the last share
    ``decay``. What comes before the fall is the same for longer runs, so that runs can be compared on the way.
    """
    rising = min(warmup, steps // 10)
    if rising == 0 and decay == 0:
        return None

    def scale(fraction: float) -> float:
        step = round(fraction * (steps - 1))
        up = (step + 1) / (rising + 1) if rising else 1.0
        down = (steps - step) / (decay * steps) if decay else 1.0
        return min(1.0, up, down)

    return scale


def kind_of_data(report: DataReport) -> str:
    """What the data is by itself: "pairs", "impressions" or "sequences"."""
    if report.kind == "pairs":
        return "pairs"
    return "impressions" if "impressions" in report.counts else "sequences"


def _look(request: TrainRequest) -> str:
    """The kind of the data, from its columns alone."""
    if request.data == "clicks":
        return "impressions"
    source = read(request.data, columns=request.columns, positive=request.positive, skip_bad=request.skip_bad)
    return available_tasks(source)[0]


def resolve_device(requested: str) -> str:
    """ "cpu" or "cuda", as asked for or as there is."""
    if requested == "cuda" and not torch.cuda.is_available():
        raise InputError("device: got 'cuda', but torch finds no GPU here. Type --device cpu, or auto.")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return requested

"""The default model and its settings for each kind of data, in a size that suits the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from negwise.datasets import DataReport, inspect
from negwise.errors import InputError
from negwise.requests import MODEL_NAMES, TASK_OF, TrainRequest


@dataclass(frozen=True)
class Preset:
    """A model, the fields of `TrainRequest` that go with it, a top-n metric to show, and a note for the user."""

    model: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    top_n: str = "ndcg@10"
    note: str = ""


_TEXT = {"batch_size": 128, "learning_rate": 9e-3, "title_words": 20, "body_words": 60}
_NEWS = {"batch_size": 64, "learning_rate": 3e-4, "title_words": 20, "history": 30}
_SMALL = "Sizes suit a CPU; they are smaller than the paper's."

ON_CPU = {
    "pairs": Preset(
        "siamese-cnn",
        {**_TEXT, "settings": {"hidden": 128, "embedding": 128, "pooling": 64, "dropout": 0.0}},
        "hit@5",
        f"{_SMALL} Width 128, no dropout, titles of 20 words, bodies of 60.",
    ),
    "impressions": Preset(
        "nrms",
        {**_NEWS, "settings": {"heads": 8, "embedding": 128, "pooling": 64}},
        note=f"{_SMALL} Width 128, titles of 20 words, histories of 30.",
    ),
    "sequences": Preset(
        "bert4rec",
        {"batch_size": 128, "learning_rate": 1e-3, "history": 50},
        note=f"{_SMALL} Sequences of 50 items.",
    ),
}
ON_GPU = {
    "pairs": Preset(
        "siamese-transformer",
        {"batch_size": 128, "learning_rate": 3e-4, "precision": "bf16-mixed"},
        "hit@5",
        "The paper's sizes; batches of 128 and bf16 keep a GPU busy.",
    ),
    "impressions": Preset(
        "nrms",
        {"batch_size": 128, "learning_rate": 3e-4, "precision": "bf16-mixed"},
        note="The paper's sizes; batches of 128 and bf16 keep a GPU busy.",
    ),
    "sequences": Preset(
        "bert4rec",
        {"batch_size": 256, "learning_rate": 1e-3, "precision": "bf16-mixed"},
        note="The paper's sizes; batches of 256 and bf16 keep a GPU busy.",
    ),
}


def task_of(report: DataReport) -> str:
    """What the data is by itself: "pairs", "impressions" or "sequences"."""
    if report.kind == "pairs":
        return "pairs"
    return "impressions" if "impressions" in report.counts else "sequences"


def preset(report: DataReport, model: str | None, device: str) -> Preset:
    """The preset for this data on "cpu" or "cuda"; another ``model`` keeps what fits its task."""
    table = ON_GPU if device == "cuda" else ON_CPU
    if model is None:
        return table[task_of(report)]
    if model not in TASK_OF:
        raise InputError(f"model: got {model!r}, expected one of {', '.join(MODEL_NAMES)}.")
    usual = table[TASK_OF[model]]
    if model == usual.model:
        return usual
    plain = {name: value for name, value in usual.fields.items() if name != "settings"}
    return Preset(model, plain, usual.top_n, f"{model} has the paper's widths; the rest suits the machine.")


def default_model(request: TrainRequest) -> str:
    """The model of the preset for the data of ``request``."""
    report = inspect(request.data, columns=request.columns, skip_bad=request.skip_bad)
    return ON_CPU[task_of(report)].model

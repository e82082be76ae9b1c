"""What `run` trains where nobody said: a model for each kind of data, in a size that suits the machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from negwise.datasets.inspection import DataReport
from negwise.errors import InputError
from negwise.jobs.training import TASK_OF


@dataclass(frozen=True)
class Preset:
    """``fields`` of `Training`, the second metric to show beside AUC, and what a user should know of the choice."""

    model: str
    task: str
    fields: dict[str, Any] = field(default_factory=dict)
    top_n: str = "ndcg@10"
    note: str = ""


_TEXT = {"batch_size": 128, "learning_rate": 9e-3, "title_words": 20, "body_words": 60}
_NEWS = {"batch_size": 64, "learning_rate": 3e-4, "title_words": 20, "history": 30}
_SMALL = "Sizes suit a CPU; they are smaller than the paper's."

ON_CPU = {
    "pairs": Preset(
        "siamese-cnn",
        "pairs",
        {**_TEXT, "settings": {"hidden": 128, "embedding": 128, "pooling": 64, "dropout": 0.0}},
        "hit@5",
        f"{_SMALL} Width 128, no dropout, titles of 20 words, bodies of 60.",
    ),
    "impressions": Preset(
        "nrms",
        "impressions",
        {**_NEWS, "settings": {"heads": 8, "embedding": 128, "pooling": 64}},
        note=f"{_SMALL} Width 128, titles of 20 words, histories of 30.",
    ),
    "sequences": Preset(
        "bert4rec",
        "sequences",
        {"batch_size": 128, "learning_rate": 1e-3, "history": 50},
        note=f"{_SMALL} Sequences of 50 items.",
    ),
}
ON_GPU = {
    "pairs": Preset(
        "siamese-transformer",
        "pairs",
        {"batch_size": 128, "learning_rate": 3e-4, "precision": "bf16-mixed"},
        "hit@5",
        "The paper's sizes; batches of 128 and bf16 keep a GPU busy.",
    ),
    "impressions": Preset(
        "nrms",
        "impressions",
        {"batch_size": 128, "learning_rate": 3e-4, "precision": "bf16-mixed"},
        note="The paper's sizes; batches of 128 and bf16 keep a GPU busy.",
    ),
    "sequences": Preset(
        "bert4rec",
        "sequences",
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
    """The preset for this data on "cpu" or "cuda"; a ``model`` that was asked for keeps what fits its task."""
    table = ON_GPU if device == "cuda" else ON_CPU
    if model is None:
        return table[task_of(report)]
    if model not in TASK_OF:
        raise InputError(f"model: got {model!r}, expected one of {', '.join(TASK_OF)}.")
    usual = table[TASK_OF[model]]
    if model == usual.model:
        return usual
    plain = {name: value for name, value in usual.fields.items() if name != "settings"}
    return Preset(model, usual.task, plain, usual.top_n, f"{model} has the paper's widths; the rest suits the machine.")

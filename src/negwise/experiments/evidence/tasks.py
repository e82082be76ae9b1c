"""The tasks as data: what is trained, with which K, for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from negwise.errors import InputError
from negwise.experiments.training import Training

EVALUATIONS = 12
"""Evaluations of each run after the one at the start."""


@dataclass(frozen=True, kw_only=True)
class EvidenceTask:
    """``fields`` of `Training`, the fixed K of the sweep, the base learning rate, and the metric beside AUC.

    ``vectors`` says that the model can start from word vectors, where the caller has some.
    """

    name: str
    title: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    ks: tuple[int, ...]
    rate: float
    steps: int
    top_n: str
    seeds: int = 5
    vectors: bool = False


TASKS = {
    task.name: task
    for task in (
        EvidenceTask(
            name="news",
            title="News recommendation: NRMS on a sample of MIND",
            fields={
                "model": "nrms",
                "split": "user",
                "folds": 5,
                "batch_size": 64,
                "title_words": 20,
                "history": 30,
                "precision": "bf16-mixed",
            },
            ks=(1, 2, 4, 6, 10, 20, 50, 100),
            rate=3e-4,
            steps=504,
            top_n="ndcg@10",
            vectors=True,
        ),
        EvidenceTask(
            name="matching",
            title="Title-body matching: siamese Transformer on Reuters",
            fields={
                "model": "siamese-transformer",
                "skip_bad": 2535,  # documents without a title or without a body
                "batch_size": 64,
                "title_words": 20,
                "body_words": 50,
                "pool": 512,
                "precision": "bf16-mixed",
            },
            ks=(1, 4, 10, 20, 50, 100, 200, 500),
            rate=3e-4,
            steps=480,
            top_n="hit@5",
            vectors=True,
        ),
        EvidenceTask(
            name="items",
            title="Item recommendation: BERT4Rec on MovieLens-1M",
            fields={"model": "bert4rec", "batch_size": 128, "history": 200, "precision": "bf16-mixed"},
            ks=(1, 4, 10, 20, 50, 100, 300, 1000),
            rate=1e-3,
            steps=1200,
            top_n="ndcg@10",
        ),
    )
}
"""By name; the primary tasks of docs/evidence-plan.md."""


def task_named(name: str) -> EvidenceTask:
    if name not in TASKS:
        raise InputError(f"task: got {name!r}, expected one of {', '.join(TASKS)}.")
    return TASKS[name]


def sized(task: EvidenceTask, k: tuple[int, ...] | None, seeds: int | None, steps: int | None) -> EvidenceTask:
    """The task with other K (1 is always among them), seeds and steps, where they are given."""
    ks = task.ks if k is None else tuple(sorted({1, *k}))
    found = replace(
        task, ks=ks, seeds=task.seeds if seeds is None else seeds, steps=task.steps if steps is None else steps
    )
    if len(ks) < 2 or ks[0] < 1:
        raise InputError(f"k: got {', '.join(map(str, k or ()))}, expected whole numbers above 1, as 4,20,100.")
    for name, value in (("seeds", found.seeds), ("steps", found.steps)):
        if value < 1:
            raise InputError(f"{name}: got {value}, expected 1 or more.")
    return found


def base_training(
    task: EvidenceTask, data: str, *, vectors: str | None, device: str, more: Mapping[str, Any]
) -> Training:
    """What every cell shares; ``more`` replaces fields of the task, where another data set needs it."""
    fields = {**task.fields, **more}
    return Training(
        data=data,
        steps=task.steps,
        eval_every=max(1, task.steps // EVALUATIONS),
        judge_training=False,
        vectors=vectors if task.vectors else None,
        device=device,
        threads=1,
        **fields,
    )

"""The tasks as data: what is trained, with which K, for how long; and what may be asked of them instead."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from negwise import InputError
from negwise.jobs import rates_around
from negwise.models import PAPER
from negwise.requests import PRECISIONS, TrainRequest
from negwise.tasks import make_task
from negwise.training import EpochOrder

EVALUATIONS = 12
"""Evaluations of each run after the one at the start."""
NOWHERE = "docs"
"""The text pairs that need no file: a task of their own."""
TAKEN = ("clicks", NOWHERE, "pace")
"""Names of files that are no record of a task from a file."""
LABELS = {
    "nrms": "NRMS",
    "naml": "NAML",
    "lstur": "LSTUR",
    "siamese-transformer": "siamese Transformer",
    "siamese-cnn": "siamese CNN",
    "siamese-lstm": "siamese LSTM",
    "bert4rec": "BERT4Rec",
}
"""Models as people know them."""


@dataclass(frozen=True, kw_only=True)
class EvidenceTask:
    """A task, or a variant of one: ``name`` is that of its record, ``of`` that of the task.

    ``fields`` of `TrainRequest` say what is learnt, and ``size`` how much of it at a time. ``models`` can learn it, the
    task's own first. ``vectors``: they can start from word vectors, where the caller has some. Runs have ``steps``,
    or ``epochs`` where those are given. The learning rate is tuned around ``rate`` on the first ``judges`` of the
    ``seeds``, or is ``rate``. ``always`` are the K that no request leaves out, ``paper_k`` is the paper's; K* is
    searched up to the largest of ``ks``, and at least to ``search``. Schedules have their ``peaks`` at "K*" and at the
    validation-"best" K; ``turning`` are turning points of ANS beside its own. ``top_n`` is the metric beside AUC.
    """

    name: str
    of: str
    variant: str = ""
    what: str
    where: str
    models: tuple[str, ...]
    fields: Mapping[str, Any] = field(default_factory=dict)
    size: Mapping[str, Any] = field(default_factory=dict)
    vectors: bool = False
    steps: int
    epochs: int | None = None
    rate: float
    tuned: bool = True
    ks: tuple[int, ...]
    always: tuple[int, ...] = (1,)
    paper_k: int = 1
    search: int = 1
    peaks: tuple[str, ...] = ("K*", "best")
    turning: tuple[float, ...] = ()
    seeds: int = 5
    judges: int = 1
    top_n: str

    @property
    def model(self) -> str:
        return str(self.fields.get("model", self.models[0]))

    @property
    def title(self) -> str:
        return f"{self.what}: {LABELS[self.model]} {self.where}"

    @property
    def rates(self) -> tuple[float, ...]:
        """Learning rates that are tried."""
        return rates_around(self.rate) if self.tuned else (self.rate,)

    @property
    def max_k(self) -> int:
        return max(self.search, self.ks[-1])


TASKS = {
    task.name: task
    for task in (
        EvidenceTask(
            name="news",
            of="news",
            what="News recommendation",
            where="on a sample of MIND",
            models=("nrms", "naml", "lstur"),
            fields={"split": "user", "folds": 5},
            size={"batch_size": 64, "title_words": 20, "history": 30, "precision": "bf16-mixed"},
            vectors=True,
            steps=504,
            rate=3e-4,
            ks=(1, 2, 4, 6, 10, 20, 50, 100),
            paper_k=4,
            top_n="ndcg@10",
        ),
        EvidenceTask(
            name="matching",
            of="matching",
            what="Title-body matching",
            where="on Reuters",
            models=("siamese-transformer", "siamese-cnn", "siamese-lstm"),
            fields={"pool": 512},
            size={"batch_size": 64, "title_words": 20, "body_words": 50, "precision": "bf16-mixed"},
            vectors=True,
            steps=480,
            rate=3e-4,
            ks=(1, 4, 10, 20, 50, 100, 200, 500),
            paper_k=180,
            top_n="hit@5",
        ),
        EvidenceTask(
            name="items",
            of="items",
            what="Item recommendation",
            where="on MovieLens-1M",
            models=("bert4rec",),
            size={"batch_size": 128, "history": 200, "precision": "bf16-mixed"},
            steps=1200,
            rate=1e-3,
            ks=(1, 4, 10, 20, 50, 100, 300, 1000),
            paper_k=20,
            top_n="ndcg@10",
        ),
    )
}
"""By name; the primary tasks of docs/evidence-plan.md."""


def task_named(name: str, data: str) -> EvidenceTask:
    """The task; on the embedded texts it is one of its own beside that of the file that the task usually has."""
    if name not in TASKS:
        raise InputError(f"task: got {name!r}, expected one of {', '.join(TASKS)}.")
    task = TASKS[name]
    if data != NOWHERE:
        return task
    return replace(task, name=NOWHERE, of=NOWHERE, where="on docstrings of Python packages")


def with_model(task: EvidenceTask, model: str | None) -> EvidenceTask:
    """Another model of the task: schedules up to K* alone, which is searched as far as for the task's own model."""
    if model is None or model == task.model:
        return task
    if model not in task.models:
        raise InputError(f"model: got {model!r}, expected one of {', '.join(task.models)} for {task.of}.")
    fields = {**task.fields, "model": model}
    name = f"{task.name}-{model}"
    return replace(task, name=name, variant="model", fields=fields, search=task.ks[-1], peaks=("K*",))


def as_published(task: EvidenceTask) -> EvidenceTask:
    """The paper's settings: its learning rate, batch size, epochs and K; lengths are negwise's defaults."""
    paper = PAPER[task.model]
    return replace(
        task,
        name=f"{task.name}-paper",
        variant="paper",
        size={"batch_size": paper.batch_size, "precision": "32-true"},
        epochs=paper.epochs,
        rate=paper.learning_rate,
        tuned=False,
        ks=(1, task.paper_k),
        always=(1, task.paper_k),
        search=task.ks[-1],
        peaks=("K*",),
    )


def sized(task: EvidenceTask, k: tuple[int, ...] | None, seeds: int | None, steps: int | None) -> EvidenceTask:
    """The task with other K (1 is always among them), seeds and steps, where they are given."""
    if steps is not None and task.epochs is not None:
        raise InputError(f"steps: got {steps}, but the paper's settings say {task.epochs} epochs. Leave one out.")
    ks = task.ks if k is None else tuple(sorted({*task.always, *k}))
    found = replace(
        task, ks=ks, seeds=task.seeds if seeds is None else seeds, steps=task.steps if steps is None else steps
    )
    if len(ks) < 2 or ks[0] < 1:
        raise InputError(f"k: got {', '.join(map(str, k or ()))}, expected whole numbers above 1, as 4,20,100.")
    for name, value in (("seeds", found.seeds), ("steps", found.steps)):
        if value < 1:
            raise InputError(f"{name}: got {value}, expected 1 or more.")
    return found


def in_precision(task: EvidenceTask, precision: str | None) -> EvidenceTask:
    """The task in another precision than its own."""
    if precision is None:
        return task
    if precision not in PRECISIONS:
        raise InputError(f"precision: got {precision!r}, expected one of {', '.join(PRECISIONS)}.")
    return replace(task, size={**task.size, "precision": precision})


def with_turning(task: EvidenceTask, points: Sequence[float]) -> EvidenceTask:
    """The task with these turning points of ANS."""
    said = ", ".join(f"{point:g}" for point in points)
    if not all(0 < point < 1 for point in points):
        raise InputError(f"turning: got {said}, expected shares of the steps between 0 and 1, as 0.01,0.1,0.5.")
    if len({f"{point:g}" for point in points}) < len(points):
        raise InputError(f"turning: got {said}, expected each once.")
    return replace(task, turning=tuple(points))


def with_name(task: EvidenceTask, name: str | None) -> EvidenceTask:
    """The task with another name for its record."""
    if name is None or name == task.name:
        return task
    if not re.fullmatch(r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*", name):
        raise InputError(f"name: got {name!r}, expected letters, digits and dashes, as {task.of}-long.")
    if name in (*TASKS, *TAKEN):
        raise InputError(f"name: got {name!r}, which is that of something else. Choose another, as {task.of}-long.")
    return replace(task, name=name)


def base_training(
    task: EvidenceTask, data: str, *, vectors: str | None, device: str, more: Mapping[str, Any]
) -> TrainRequest:
    """What every cell shares; ``more`` replaces fields of the task, where another data set needs it."""
    base = TrainRequest(
        data=data,
        recipe="paper",
        evaluate_training=False,
        vectors=vectors if task.vectors else None,
        device=device,
        threads=1,
        **{"model": task.model, **task.fields, **task.size, **more},
    )
    steps = task.steps if task.epochs is None else steps_of(base, task.epochs)
    return replace(base, steps=steps, eval_every=-(-steps // EVALUATIONS))


def steps_of(request: TrainRequest, epochs: int) -> int:
    """Steps of so many epochs of the first seed. Every seed takes as many, also where its fold is a little larger."""
    assert request.batch_size is not None
    examples = len(make_task(request).examples)
    return epochs * EpochOrder(examples, request.batch_size, request.seed).steps_per_epoch

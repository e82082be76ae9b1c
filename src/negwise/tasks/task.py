"""A task: data, model, sampler, loss and evaluation, put together from a request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import datasets
from negwise.datasets import Lengths, SequenceWindows, Source, SplitSizes, TaskData
from negwise.errors import InputError
from negwise.metrics.ranking import EvaluationSplit
from negwise.models import build, load_vectors
from negwise.models.hyperparameters import BERT4REC_MAX_LENGTH
from negwise.protocols import Loss, Query, Sampler
from negwise.requests import TASK_OF, TrainRequest
from negwise.tasks.evaluation import evaluation_splits
from negwise.tasks.loss_choice import make_loss
from negwise.tasks.sampler_choice import make_sampler


@dataclass(frozen=True, eq=False)
class Task:
    """What a run is made of, beside its rule and its settings. ``examples`` is what the loop trains on."""

    data: TaskData
    model: Any
    sampler: Sampler
    loss: Loss
    examples: Any
    splits: Mapping[str, EvaluationSplit]
    mask_items: Callable[..., tuple[Query, Tensor]] | None = None


def make_task(request: TrainRequest, source: Source | None = None) -> Task:
    """The task of a request, whose data is read unless ``source`` has it; weights are drawn from the request's seed."""
    data = load_data(request, source)
    model = make_model(request, data)
    splits = evaluation_splits(data, request.queries)
    if not request.evaluate_training:
        del splits["train"]
    sampler = make_sampler(data, model, request.negatives, request.pool)
    loss = make_loss(request.loss, data.n_items, model)
    if data.windows is None:
        return Task(data, model, sampler, loss, data.train, splits)
    return Task(data, model, sampler, loss, _MaskedSequences(data.windows), splits, model.mask_items)


def load_data(request: TrainRequest, source: Source | None = None) -> TaskData:
    """The data as the model of ``request`` needs it."""
    name = _task_of(request)
    sizes = SplitSizes()
    if request.folds is not None:
        sizes = SplitSizes(folds=request.folds, fold=request.seed % max(request.folds, 1))
    if request.data == "clicks":
        if name != "impressions":
            raise InputError(
                f"clicks: simulated impressions, but {request.model} learns from {name}. Type --model nrms."
            )
        world = datasets.clicks(**request.world)
        history = request.history or Lengths().history
        return world.task(split=request.split or "user", shares=sizes, history=history)
    if request.world:
        raise InputError(f"world: got {request.world}, but {request.data} is no simulated world. Leave it out.")
    if source is None:
        source = datasets.read(request.data, columns=request.columns, skip_bad=request.skip_bad)
    history = request.history or (BERT4REC_MAX_LENGTH if name == "sequences" else Lengths().history)
    lengths = Lengths(request.title_words, request.body_words, history)
    return datasets.prepare(source, task=name, split=request.split, shares=sizes, lengths=lengths)


def make_model(request: TrainRequest, data: TaskData) -> Any:
    """The model, its weights drawn from the request's seed."""
    assert request.model is not None
    content = data.content()
    if request.vectors is not None:
        if data.text is None:
            raise InputError(f"vectors: got {request.vectors}, but there are no words for {request.model} to read.")
        content["vectors"] = load_vectors(request.vectors, data.text.vocabulary.words).table
    settings = {"max_len": data.train.max_length} if request.model == "bert4rec" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        return build(request.model, content, **(settings | request.settings))


def _task_of(request: TrainRequest) -> str:
    if request.model is None:
        raise InputError("model: got none, expected one of " + ", ".join(TASK_OF) + ".")
    return TASK_OF[request.model]


@dataclass(frozen=True, eq=False)
class _MaskedSequences:
    """Sequences as the loop takes them: positives are the masked items, which are chosen at each step."""

    windows: SequenceWindows

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: NDArray[np.int64], /) -> tuple[Query, Tensor, Tensor]:
        query = self.windows.batch(indices)
        return query, query.users, query.users

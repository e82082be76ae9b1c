"""A task: data, model, sampler, loss and evaluation, put together from a request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import datasets
from negwise.datasets import HISTORY, SequenceWindows, Source, SplitSizes, TaskData
from negwise.errors import InputError
from negwise.metrics.ranking import EvaluationSplit
from negwise.models import build, load_vectors
from negwise.models.hyperparameters import BERT4REC_MAX_LENGTH
from negwise.protocols import Loss, Query, Sampler
from negwise.requests import TASK_OF, TrainRequest
from negwise.tasks.evaluation import evaluation_splits
from negwise.tasks.loss_choice import make_loss
from negwise.tasks.sampler_choice import make_sampler
from negwise.tasks.text import TokenizedTexts, model_content, tokenize


@dataclass(frozen=True, eq=False)
class Task:
    """What a run is made of, beside its rule and its settings.

    ``examples`` is what the loop trains on; ``assets`` are files that make the model usable without its data.
    """

    data: TaskData
    model: Any
    sampler: Sampler
    loss: Loss
    examples: Any
    splits: Mapping[str, EvaluationSplit]
    mask_items: Callable[..., tuple[Query, Tensor]] | None = None
    assets: Mapping[str, bytes] = field(default_factory=dict)


def make_task(request: TrainRequest, source: Source | None = None) -> Task:
    """The task of a request, whose data is read unless ``source`` has it; weights are drawn from the request's seed."""
    data = load_data(request, source)
    texts = tokenize(data, title_words=request.title_words, body_words=request.body_words)
    model = make_model(request, data, texts)
    splits = evaluation_splits(data, request.queries)
    if not request.evaluate_training:
        del splits["train"]
    sampler = make_sampler(data, model, request.negatives, request.pool)
    loss = make_loss(request.loss, data.n_items, model)
    assets = _assets(request, texts)
    if data.windows is None:
        return Task(data, model, sampler, loss, data.train, splits, assets=assets)
    examples = _MaskedSequences(data.windows)
    return Task(data, model, sampler, loss, examples, splits, model.mask_items, assets)


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
        return world.task(split=request.split or "user", shares=sizes, history=request.history or HISTORY)
    if request.world:
        raise InputError(f"world: got {request.world}, but {request.data} is no simulated world. Leave it out.")
    if source is None:
        source = datasets.read(request.data, columns=request.columns, skip_bad=request.skip_bad)
    history = request.history or (BERT4REC_MAX_LENGTH if name == "sequences" else HISTORY)
    return datasets.prepare(source, task=name, split=request.split, shares=sizes, history=history)


def make_model(request: TrainRequest, data: TaskData, texts: TokenizedTexts | None = None) -> Any:
    """The model, its weights drawn from the request's seed; ``texts`` are those of `tokenize`, made where missing."""
    assert request.model is not None
    texts = texts or tokenize(data, title_words=request.title_words, body_words=request.body_words)
    content = model_content(data, texts)
    if request.vectors is not None:
        if texts is None:
            raise InputError(f"vectors: got {request.vectors}, but there are no words for {request.model} to read.")
        content["vectors"] = load_vectors(request.vectors, texts.tokenizer.words).table
    settings = {"max_len": data.train.max_length} if request.model == "bert4rec" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        return build(request.model, content, **(settings | request.settings))


def _assets(request: TrainRequest, texts: TokenizedTexts | None) -> dict[str, bytes]:
    """What it takes to make the model again: its name and settings, and its tokenizer."""
    model = {"model": request.model, "settings": request.settings, "history": request.history}
    found = {"model.json": json.dumps(model, indent=1).encode()}
    if texts is not None:
        found["tokenizer.json"] = texts.tokenizer.to_json(title=request.title_words, body=request.body_words)
    return found


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

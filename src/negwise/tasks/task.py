"""A task: data, texts, model, sampler, loss and evaluation, put together from a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import datasets, metrics
from negwise.datasets import Examples, SequenceWindows, Source, SplitSizes, TaskData
from negwise.errors import InputError
from negwise.losses import LossWithoutBound, bce, bpr, debiased, decoupled, gbce, info_nce, scores
from negwise.metrics.model_ranking import EvaluationSplit, FullRanking, ImpressionRanking, rank_positives, subset
from negwise.models import WordTokenizer, build, load_vectors
from negwise.models.hyperparameters import BODY_WORDS, TITLE_WORDS
from negwise.protocols import Draw, Loss, Query, Sampler
from negwise.requests import TASK_OF, TrainRequest
from negwise.requests.training_requests import parse_loss
from negwise.samplers import Given, GivenFirst, Hardest
from negwise.stages import stage
from negwise.tasks.model_files import model_files
from negwise.tasks.recipes import with_recipe
from negwise.tasks.sampler_choice import make_sampler

SCORE_LOSSES: Mapping[str, Callable[..., LossWithoutBound]] = {
    "bpr": bpr,
    "bce": bce,
    "gbce": gbce,
    "decoupled": decoupled,
    "debiased": debiased,
}
TAU_PLUS = 0.1
ALL = 2**62


def no_assets(request: TrainRequest) -> dict[str, bytes]:  # noqa: ARG001
    """For runs whose model nobody will use."""
    return {}


@dataclass(frozen=True, eq=False)
class Task:
    """What a run is made of, beside its rule and its settings.

    ``examples`` is what the loop trains on; ``assets(request)`` are files that make the model usable without its data.
    """

    data: TaskData
    model: Any
    sampler: Sampler
    loss: Loss
    examples: Any
    splits: Mapping[str, EvaluationSplit]
    mask_items: Callable[..., tuple[Query, Tensor]] | None = None
    assets: Callable[[TrainRequest], Mapping[str, bytes]] = no_assets


def make_task(request: TrainRequest, source: Source | None = None) -> Task:
    """The task of a request, whose data is read unless ``source`` has it; weights are drawn from the request's seed."""
    request = with_recipe(request)
    source = source or _source(request)
    data = load_data(request, source)
    with stage("numbering the words"):
        texts = _tokenized(request, data)
    with stage("making the model"):
        model = make_model(request, data, texts)
    with stage("making queries and negatives"):
        splits = evaluation_splits(data, request.queries)
        sampler = make_sampler(data, model, request.negatives, request.pool)
    if not request.evaluate_training:
        del splits["train"]
    _check_correction(request, sampler)
    loss = make_loss(request.loss, data.n_items, model)
    assets = partial(model_files, data=data, texts=texts, model=model, source=source)
    if data.windows is None:
        return Task(data, model, sampler, loss, data.train, splits, assets=assets)
    examples = _MaskedSequences(data.windows)
    return Task(data, model, sampler, loss, examples, splits, model.mask_items, assets)


def copy_task(task: Task, request: TrainRequest) -> Task:
    """The same task with weights of its own, which are those of now; what does not learn is shared."""
    model = deepcopy(task.model)
    sampler = make_sampler(task.data, model, request.negatives, request.pool)
    loss = make_loss(request.loss, task.data.n_items, model)
    mask_items = None if task.mask_items is None else model.mask_items
    return replace(task, model=model, sampler=sampler, loss=loss, mask_items=mask_items)


def load_data(request: TrainRequest, source: Source | None = None) -> TaskData:
    """The data as the model of ``request`` needs it."""
    request = with_recipe(request)
    assert request.model is not None and request.history is not None
    name = TASK_OF[request.model]
    sizes = SplitSizes()
    if request.folds is not None:
        sizes = SplitSizes(folds=request.folds, fold=request.seed % max(request.folds, 1))
    if request.data == "clicks":
        if name != "impressions":
            raise InputError(
                f"clicks: simulated impressions, but {request.model} learns from {name}. Type --model nrms."
            )
        world = datasets.clicks(**request.world)
        return world.task(split=request.split or "user", shares=sizes, history=request.history)
    if request.world:
        raise InputError(f"world: got {request.world}, but {request.data} is no simulated world. Leave it out.")
    source = source or _source(request)
    assert source is not None
    return datasets.prepare(source, task=name, split=request.split, shares=sizes, history=request.history)


def _source(request: TrainRequest) -> Source | None:
    """The tables of the data; None for simulated clicks, which have none."""
    if request.data == "clicks":
        return None
    return datasets.read(request.data, columns=request.columns, positive=request.positive, skip_bad=request.skip_bad)


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """``tokens["title"]`` and ``tokens["body"]`` (N, L) int32, and the tokenizer that made them."""

    tokenizer: WordTokenizer
    tokens: Mapping[str, NDArray[np.int32]]


def tokenize(
    data: TaskData, *, title_words: int = TITLE_WORDS, body_words: int = BODY_WORDS, min_count: int = 1
) -> TokenizedTexts | None:
    """Train a tokenizer on the training texts of ``data`` and number all texts; None where there are none."""
    texts = data.texts
    if texts is None:
        return None
    if texts.vocabulary is not None:
        tokenizer = WordTokenizer(texts.vocabulary)
    else:
        fields = list(texts.fields.values())
        training = [field.words.take(texts.training_rows) for field in fields]
        tokenizer = WordTokenizer.train(training, fields[0].word_list, min_count)
    lengths = {"title": title_words, "body": body_words}
    tokens = {
        name: tokenizer.encode_words(field.words, field.word_list, lengths[name])
        for name, field in texts.fields.items()
    }
    return TokenizedTexts(tokenizer, tokens)


def _tokenized(request: TrainRequest, data: TaskData) -> TokenizedTexts | None:
    assert request.title_words is not None and request.body_words is not None
    return tokenize(data, title_words=request.title_words, body_words=request.body_words)


def model_content(data: TaskData, texts: TokenizedTexts | None) -> dict[str, Any]:
    """What models are built from, by the names that they use: token tables, categories and counts."""
    found: dict[str, Any] = {"n_items": data.n_items, "n_users": data.n_users}
    if texts is not None and data.texts is not None:
        title, body = ("left", "right") if data.name == "pairs" else ("title", "abstract")
        found |= {title: texts.tokens["title"], body: texts.tokens["body"], **data.texts.categories}
        found["n_words"] = len(texts.tokenizer)
    return found


def make_model(request: TrainRequest, data: TaskData, texts: TokenizedTexts | None = None) -> Any:
    """The model, its weights drawn from the request's seed; ``texts`` are those of `tokenize`, made where missing."""
    request = with_recipe(request)
    assert request.model is not None
    texts = texts or _tokenized(request, data)
    content = model_content(data, texts)
    if request.vectors is not None:
        if texts is None:
            raise InputError(f"vectors: got {request.vectors}, but there are no words for {request.model} to read.")
        content["vectors"] = load_vectors(request.vectors, texts.tokenizer.words).table
    settings = {"max_len": data.train.max_length} if request.model == "bert4rec" else {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        return build(request.model, content, **(settings | request.settings))


@dataclass(frozen=True)
class ScoreLoss:
    """A loss on scores, called as `info_nce` is: the scores are made first."""

    name: str
    options: tuple[tuple[str, float], ...] = ()

    def __call__(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor,
        *,
        ids: Tensor | Draw,
        mask: Tensor | None = None,
        log_q: Tensor | None = None,
        reduction: str = "mean",
    ) -> LossWithoutBound:
        if log_q is not None:
            raise InputError(
                f"correct=True corrects InfoNCE by the sampler's log_q; {self.name} has no such correction."
            )
        found = scores(query, positive, negatives, ids=ids, mask=mask)
        return SCORE_LOSSES[self.name](*found, reduction=reduction, **dict(self.options))


def make_loss(text: str, n_items: int, model: Any) -> Loss:
    """The loss ``text``, as ``"info-nce"`` or ``"gbce:t=0.75"``.

    gBCE gets the size of the catalogue, the debiased loss the smallest score of ``model``.
    """
    spec = parse_loss(text)
    if spec.name == "info-nce":
        return info_nce
    options: dict[str, float] = dict(spec.options)
    if spec.name == "gbce":
        options["catalogue"] = n_items
    if spec.name == "debiased":
        temperature = getattr(model, "temperature", None)
        options.setdefault("tau_plus", TAU_PLUS)
        options["min_score"] = -1 / temperature if temperature else -math.inf
    SCORE_LOSSES[spec.name](torch.zeros(1), torch.zeros(1, 1), **options)  # refuses a wrong option before a run begins
    return ScoreLoss(spec.name, tuple(sorted(options.items())))


def query_candidates(data: TaskData) -> int:
    """How many candidates a query of validation is ranked among; for impressions, on average."""
    if data.impressions is None:
        first, last = data.val.candidates
        return int(last - first)
    return max(round(float(data.impressions.lengths[np.unique(data.val.groups)].mean())), 1)


def evaluation_splits(data: TaskData, max_queries: int | None = None) -> dict[str, EvaluationSplit]:
    """How to evaluate ``train``, ``val`` and ``test`` of ``data``.

    Training is evaluated on a fixed subset as large as validation; ``max_queries`` bounds all three.
    """
    if max_queries is not None and max_queries < 2:
        raise InputError(f"queries: got {max_queries}, expected 2 or more, as one has no standard error.")
    whole = {name: _whole(data, getattr(data, name)) for name in ("train", "val", "test")}
    size = {"train": len(whole["val"].query_examples)}
    return {name: subset(split, min(size.get(name, ALL), max_queries or ALL)) for name, split in whole.items()}


def evaluate_model(model: Any, split: EvaluationSplit, cutoffs: tuple[int, ...] = (5, 10)) -> metrics.MetricSummary:
    """Every metric of ``model`` on ``split``, dropout off."""
    return metrics.evaluate(rank_positives(model, split), cutoffs)


def _whole(data: TaskData, examples: Examples) -> EvaluationSplit:
    if data.impressions is None or data.labels is None:
        return FullRanking(examples, np.arange(len(examples)), *examples.candidates, data.eval_exclusions)
    groups, chosen = np.unique(examples.groups, return_index=True)
    return ImpressionRanking(examples, chosen, groups, data.impressions, data.labels)


def _check_correction(request: TrainRequest, sampler: Sampler) -> None:
    """Refuse a correction that the loss or the sampler does not have, before a run begins."""
    if not request.correct:
        return
    if parse_loss(request.loss).name != "info-nce":
        raise InputError(
            f"correct: corrects InfoNCE, but the loss is {request.loss}. Type --loss info-nce, or leave --correct out."
        )
    if isinstance(sampler, GivenFirst):
        raise InputError(
            "correct: corrects by the probabilities of draws, and negatives that came with the data were not drawn. "
            "Leave --correct out."
        )
    for one in (sampler, *getattr(sampler, "parts", ())):
        if isinstance(one, Given | Hardest):
            raise InputError(
                f"correct: corrects by the probabilities of draws, and {type(one).__name__.lower()} has none. "
                "Type other --negatives, as uniform, popularity, in-batch or queue, or leave --correct out."
            )


@dataclass(frozen=True, eq=False)
class _MaskedSequences:
    """Sequences as the loop takes them: positives are the masked items, which are chosen at each step."""

    windows: SequenceWindows

    def __len__(self) -> int:
        return len(self.windows)

    def batch(self, indices: NDArray[np.int64], /) -> tuple[Query, Tensor, Tensor]:
        query = self.windows.batch(indices)
        return query, query.users, query.users

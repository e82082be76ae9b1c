"""What can be asked of training: one run, a grid, the main job; with samplers and losses as people type them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from negwise.errors import InputError
from negwise.requests.option_fields import (
    check_choice,
    check_count,
    check_rates,
    check_share,
    option,
    parse_columns,
    parse_rates,
    parse_settings,
    split_commas,
)

SAMPLERS: Mapping[str, tuple[str, ...]] = {
    "uniform": (),
    "popularity": ("alpha",),
    "in-batch": (),
    "batch-first": (),
    "queue": ("capacity",),
    "impression": (),
    "given": (),
    "pool": ("size",),
    "hardest": ("candidates",),
}
"""Where negatives come from, and the options of each; a bare value is the first one: ``queue:4096``.

How each is made: `negwise.tasks.sampler_choice.CHOICES`.
"""
LOSSES: Mapping[str, tuple[str, ...]] = {
    "info-nce": (),
    "bpr": (),
    "bce": (),
    "gbce": ("t",),
    "decoupled": (),
    "debiased": ("tau_plus",),
}
METRICS = ("auc", "auc_query", "auc_pooled", "mrr", "rr")
TOP_N_METRICS = ("ndcg", "hit")
"""Metrics of `negwise.metrics.evaluate`; those with a cut-off are typed as ndcg@10. K for each: `theory.metric_k`."""
_METRICS = f"{', '.join(METRICS)}, {', '.join(f'{name}@N' for name in TOP_N_METRICS)}"
TASK_OF = {
    "nrms": "impressions",
    "naml": "impressions",
    "lstur": "impressions",
    "siamese-transformer": "pairs",
    "siamese-cnn": "pairs",
    "siamese-lstm": "pairs",
    "bert4rec": "sequences",
}
"""The models, and the kind of data that each learns from."""
MODEL_NAMES = tuple(TASK_OF)
PRECISIONS = ("32-true", "bf16-mixed", "64-true")
DEVICES = ("auto", "cpu", "cuda")
RECIPES = ("tuned", "paper")
POOL = 512
METHODS = ("paper",)
SCHEDULES = ("fixed", "warm", "ans")
_DATA = "A file, a folder, or data that ships with negwise: docs, clicks."
_COLUMN = "ROLE=COLUMN, such as user=customer. May be repeated."
_POSITIVE = "Which rows are positives, such as rating>=4."
_SKIP_BAD = "Skip up to this many bad rows of the data. Each is reported."
_SPLIT = "How to split off validation and test data: time, last, user, random or folders."
_QUERIES = "Evaluate on at most this many queries."
_POOL = "Draw the negatives of a step from this many texts, whatever K is. Alone, it means --negatives pool."
_NEGATIVES = f"Negatives from: {', '.join(SAMPLERS)}, or a mix."
_LOSS = f"One of {', '.join(LOSSES)}. Options follow, as in gbce:t=0.75."
_BATCH_SIZE = "Examples in a batch."
_K = "Negatives: a number, all, ans:PEAK, warm:PEAK, metric (K for --metric), online or online:RELIABILITY."
_RECIPE = "tuned: the settings that we would use on this machine. paper: the paper's settings."
_MAX_K = "The largest K that metric, online and all may use."
_SEED = "Seed of weights, order, negatives and dropout."
_METRIC = f"The metric that K and the kept weights are for: {_METRICS}."
_PRECISION = "32-true, bf16-mixed or 64-true."
_BY_DATA, _BY_RECIPE = "by the data", "by the recipe"
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """One run. None means the value of the recipe (`negwise.tasks.recipes`).

    ``k`` is a number, ``all``, ``ans:20``, ``warm:20``, ``metric`` or ``online:0.3``. ``title_words``, ``body_words``
    and ``history`` say how much of a text and of a user the model sees; ``settings`` are arguments of the model, as
    ``{"hidden": 128}``, and ``world`` those of the simulated clicks. With ``folds``, users or groups are dealt into
    that many parts, and the test split is part ``seed`` modulo ``folds``. ``evaluate_training`` gives a training AUC,
    which only an estimate needs; None does so with K = 1.
    """

    data: str = option(help=_DATA)
    out: str | None = option(None, help="The folder of the run. The same command resumes it.", identity=False)
    model: str | None = option(None, help=f"{', '.join(MODEL_NAMES[:-1])} or {MODEL_NAMES[-1]}.", show_default=_BY_DATA)
    k: str | None = option(None, help=_K, show_default="metric")
    recipe: str = option("tuned", help=_RECIPE)
    negatives: str | None = option(None, help=_NEGATIVES, show_default=_BY_DATA)
    loss: str = option("info-nce", help=_LOSS)
    correct: bool = option(False, flag="--correct", help="Correct InfoNCE by the sampler's probabilities (logQ).")
    metric: str | None = option(
        None, help=f"Keep the weights that are best by this metric: {_METRICS}.", show_default=_BY_RECIPE
    )
    epochs: int | None = option(None, help="Passes over the data.", show_default=_BY_RECIPE)
    steps: int | None = option(None, help="Optimizer steps, instead of epochs.")
    batch_size: int | None = option(None, help=_BATCH_SIZE, show_default=_BY_RECIPE)
    learning_rate: float | None = option(None, help="The highest learning rate of Adam.", show_default=_BY_RECIPE)
    warmup: int | None = option(
        None, help="Steps over which the learning rate rises, at most a tenth of all.", show_default=_BY_RECIPE
    )
    decay: float | None = option(
        None,
        help="The share of the steps, at the end, over which the learning rate falls to 0.",
        show_default=_BY_RECIPE,
    )
    weight_decay: float | None = option(None, help="Weight decay of AdamW.", show_default=_BY_RECIPE)
    max_k: int | None = option(None, help=_MAX_K, show_default="as many as there are")
    seed: int = option(0, help=_SEED)
    split: str | None = option(None, help=_SPLIT, show_default=_BY_DATA)
    folds: int | None = option(
        None, help="Folds of users or groups; the seed picks the test fold.", on_command_line=False
    )
    pool: int | None = option(None, help=_POOL, show_default="as many as K needs")
    title_words: int | None = option(None, help="Words of a title that the model sees.", show_default=_BY_RECIPE)
    body_words: int | None = option(None, help="Words of a body that the model sees.", show_default=_BY_RECIPE)
    history: int | None = option(None, help="Items of a user that the model sees.", show_default=_BY_RECIPE)
    settings: dict[str, Any] = option(
        default_factory=dict, flag="--setting", parse=parse_settings, repeatable=True,
        help="An argument of the model, such as dropout=0.1. May be repeated.",
    )  # fmt: skip
    world: dict[str, Any] = option(
        default_factory=dict, help="Arguments of the simulated clicks.", on_command_line=False
    )
    vectors: str | None = option(None, help="Word vectors in GloVe's format.")
    queries: int | None = option(None, help=_QUERIES, show_default="all")
    evaluate_training: bool | None = option(
        None, help="Evaluate on training queries too.", show_default="only with K = 1", on_command_line=False
    )
    eval_every: int | None = option(None, help="Steps between evaluations.", show_default="20 evaluations")
    columns: dict[str, str] = option(
        default_factory=dict, flag="--column", parse=parse_columns, repeatable=True, help=_COLUMN
    )
    positive: str | None = option(None, help=_POSITIVE, show_default="all, or by label")
    skip_bad: int = option(0, help=_SKIP_BAD)
    precision: str | None = option(None, help=_PRECISION, show_default=_BY_RECIPE)
    device: str = option("auto", help="auto, cpu or cuda.", identity=False)
    learnt_from: tuple[str, ...] = option(
        (), help="What the weights at the start learnt from: digest and split of each data set.", on_command_line=False
    )
    threads: int | None = option(None, help="CPU threads.", on_command_line=False, identity=False)
    tensorboard: bool = option(False, help="Also log to TensorBoard.", flag="--tensorboard", identity=False)

    def __post_init__(self) -> None:
        for name in (
            "steps",
            "epochs",
            "batch_size",
            "pool",
            "title_words",
            "body_words",
            "history",
            "eval_every",
            "max_k",
        ):
            check_count(name, getattr(self, name))
        _check_shared(self)
        check_count("seed", self.seed, 0)
        check_count("queries", self.queries, 2)
        check_choice("recipe", self.recipe, RECIPES)
        check_count("warmup", self.warmup, 0)
        check_share("decay", self.decay)
        check_share("weight_decay", self.weight_decay)
        if self.metric is not None:
            check_metric(self.metric)
        if self.steps is not None and self.epochs is not None:
            raise InputError(f"steps={self.steps} and epochs={self.epochs}: got both, expected one of them.")
        if self.learning_rate is not None:
            check_rates((self.learning_rate,))


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """The main job: one model with the whole budget, trained with K for the metric. None means the value of the recipe.

    ``method="paper"`` is the paper's way: a pilot with K = 1, K* from its curves, training with ``schedule`` up to K*,
    and a comparison with other K.
    """

    data: str = option("docs", help=_DATA)
    out: str = option("negwise-run", help="The folder of the job. The same command resumes it.", identity=False)
    model: str | None = option(None, help="One of `train --model`.", show_default=_BY_DATA)
    k: str | None = option(None, help=_K, show_default="metric")
    metric: str | None = option(None, help=_METRIC, show_default=_BY_DATA)
    budget: str | None = option(None, help="Time for the whole job, such as 90s, 10m or 2h.")
    steps: int | None = option(None, help="Optimizer steps of each run.", show_default="by the budget or the recipe")
    seed: int = option(0, help=_SEED)
    seeds: int = option(
        1, help="Train so many models, each with the next seed and the whole budget. 5 give useful error bars."
    )
    jobs: int | None = option(
        None, help="How many runs train at the same time.", show_default="cores, or 1 on a GPU", identity=False
    )
    start: str | None = option(
        None, flag="--from", help="Start from the weights of this job, run or exported model, on newer data."
    )
    race: bool = option(True, help="First try other learning rates for a part of the steps. The best one goes on.")
    plan: bool = option(False, flag="--plan", help="Print the plan and stop.", identity=False)
    method: str | None = option(
        None,
        help="paper: train a pilot with K = 1, estimate K* from its curves, train with K*.",
        show_default="one run",
    )
    schedule: str | None = option(
        None,
        help="With --method paper: fixed, warm or ans, each up to K*, or a rule such as warm:20.",
        show_default="fixed",
    )
    compare: tuple[str, ...] | None = option(
        None,
        parse=split_commas,
        help="Other K to train for the same time, such as 1,100. With --method paper, none trains no other K.",
        show_default="none",
    )
    lam: float = option(
        0.9, help="With --method paper: the weight of good and bad samples against easy ones, from 0.5 to 1."
    )
    negatives: str | None = option(None, help=_NEGATIVES, show_default=_BY_DATA)
    loss: str = option("info-nce", help=_LOSS)
    batch_size: int | None = option(None, help=_BATCH_SIZE, show_default=_BY_RECIPE)
    learning_rate: float | None = option(
        None,
        help="Learning rate. With --method paper, a third and three times this value are tried too.",
        show_default=_BY_RECIPE,
    )
    split: str | None = option(None, help=_SPLIT, show_default=_BY_DATA)
    pool: int | None = option(None, help=_POOL, show_default="as many as K needs")
    queries: int | None = option(None, help=_QUERIES, show_default="all")
    columns: dict[str, str] = option(
        default_factory=dict, flag="--column", parse=parse_columns, repeatable=True, help=_COLUMN
    )
    positive: str | None = option(None, help=_POSITIVE, show_default="all, or by label")
    skip_bad: int = option(0, help=_SKIP_BAD)
    precision: str | None = option(None, help=_PRECISION, show_default=_BY_RECIPE)
    device: str = option("auto", help="auto, cpu or cuda.")

    def __post_init__(self) -> None:
        _check_job(self)
        check_choice("method", self.method, METHODS)
        check_count("seed", self.seed, 0)
        if self.method == "paper" and self.plan:
            raise InputError("plan: got --plan with --method paper, whose plan follows from its pilot. Leave one out.")
        if self.metric is not None:
            check_metric(self.metric)
        if self.method == "paper" and self.compare not in (None, ("none",)):
            raise InputError(
                f"compare: got {', '.join(self.compare or ())} with --method paper, which compares with K = 1, K* and "
                "100. Type --compare none, or leave it out."
            )
        if self.method == "paper" and self.start is not None:
            raise InputError(f"from: got {self.start!r} with --method paper, whose pilot begins anew. Leave one out.")
        if self.method is None and self.schedule is not None:
            raise InputError(f"schedule: got {self.schedule!r}, which belongs to --method paper. Type --k instead.")
        if self.method == "paper" and self.k is not None:
            raise InputError(f"k: got {self.k!r}, but with --method paper the pilot sets K. Type --schedule instead.")
        if not 0.5 <= self.lam <= 1:
            raise InputError(f"lam: got {self.lam:g}, expected a weight from 0.5 to 1.")
        if self.budget is not None:
            parse_duration(self.budget)
        if self.learning_rate is not None:
            check_rates((self.learning_rate,))

    @property
    def other_ks(self) -> tuple[str, ...]:
        """The rules of ``compare``; none for "none"."""
        return () if self.compare in (None, ("none",)) else tuple(self.compare or ())


@dataclass(frozen=True, kw_only=True)
class SweepRequest:
    """A grid: every rule of ``k`` with every seed. With several learning rates, each K keeps its best."""

    out: str = option(help="The folder of the sweep. The same command resumes it.", identity=False)
    data: str = option("docs", help=_DATA)
    k: tuple[str, ...] = option(
        ("1", "4", "20", "100"), parse=split_commas, help="Rules for K with commas, such as 1,4,warm:20,online."
    )
    model: str | None = option(None, help="One of `train --model`.", show_default=_BY_DATA)
    steps: int | None = option(None, help="Optimizer steps of each run.", show_default="1000")
    seeds: int = option(3, help="Runs of each K.")
    jobs: int | None = option(
        None, help="How many runs train at the same time.", show_default="cores, or 1 on a GPU", identity=False
    )
    negatives: str | None = option(None, help=_NEGATIVES, show_default=_BY_DATA)
    loss: str = option("info-nce", help=_LOSS)
    batch_size: int | None = option(None, help=_BATCH_SIZE, show_default=_BY_RECIPE)
    learning_rate: tuple[float, ...] | None = option(
        None, parse=parse_rates, show_default=_BY_RECIPE, help="Learning rates with commas. Each K keeps its best."
    )
    split: str | None = option(None, help=_SPLIT, show_default=_BY_DATA)
    pool: int | None = option(None, help=_POOL, show_default="as many as K needs")
    queries: int | None = option(None, help=_QUERIES, show_default="all")
    columns: dict[str, str] = option(
        default_factory=dict, flag="--column", parse=parse_columns, repeatable=True, help=_COLUMN
    )
    positive: str | None = option(None, help=_POSITIVE, show_default="all, or by label")
    skip_bad: int = option(0, help=_SKIP_BAD)
    precision: str | None = option(None, help=_PRECISION, show_default=_BY_RECIPE)
    device: str = option("auto", help="auto, cpu or cuda.")

    def __post_init__(self) -> None:
        _check_job(self)
        check_rates(self.learning_rate)
        if not self.k:
            raise InputError("k: got nothing, expected one or more rules, as 1,4,20.")


@dataclass(frozen=True)
class Spec:
    """A name with options, and its weight in a mix."""

    name: str
    options: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0

    def whole(self, option: str, default: int) -> int:
        """The option as a whole number."""
        value = self.options.get(option, default)
        if value != int(value):
            raise InputError(f"{self.name}: got {option}={value:g}, expected a whole number.")
        return int(value)


def parse_loss(text: str) -> Spec:
    """``"gbce:t=0.75"`` as ``Spec("gbce", {"t": 0.75})``."""
    return _parse("loss", text, LOSSES)


def parse_samplers(text: str) -> tuple[Spec, ...]:
    """``"0.5*uniform+0.5*popularity:0.75"`` as two specs with their weights; one sampler is a mix of one."""
    specs = []
    for part in text.split("+"):
        weight, star, rest = part.partition("*")
        specs.append(_parse("negatives", rest if star else part, SAMPLERS, weight if star else "1"))
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise InputError(f"negatives: got {text!r}, expected each sampler once in a mix.")
    return tuple(specs)


def _parse(what: str, text: str, known: Mapping[str, tuple[str, ...]], weight: str = "1") -> Spec:
    name, _, rest = text.strip().lower().partition(":")
    if name not in known:
        raise InputError(f"{what}: got {name!r}, expected one of {', '.join(known)}.")
    options: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals and known[name]:
            key, value = known[name][0], key
        if key not in known[name]:
            has = f"{name} takes {', '.join(known[name])}" if known[name] else f"{name} takes no option"
            raise InputError(f"{what}: got {part!r} in {text!r}; {has}.")
        options[key] = _number(what, text, value)
    found = _number(what, text, weight)
    if not found > 0:
        raise InputError(f"{what}: got the weight {weight} in {text!r}, expected a number above 0.")
    return Spec(name, options, found)


def _number(what: str, text: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"{what}: got {value!r} in {text!r}, expected a number.")
    return number


def _check_job(request: RunRequest | SweepRequest) -> None:
    for name in ("steps", "seeds", "jobs", "batch_size", "pool"):
        check_count(name, getattr(request, name))
    check_count("queries", request.queries, 2)
    _check_shared(request)


def _check_shared(request: TrainRequest | RunRequest | SweepRequest) -> None:
    if request.out == "":
        raise InputError("out: got an empty name, expected a folder, as runs/a.")
    parse_loss(request.loss)
    if request.negatives is not None:
        parse_samplers(request.negatives)
    check_count("skip_bad", request.skip_bad, 0)
    check_choice("model", request.model, MODEL_NAMES)
    check_choice("precision", request.precision, PRECISIONS)
    check_choice("device", request.device, DEVICES)


def check_metric(name: str) -> None:
    """Refuse a name that `negwise.metrics.evaluate` does not have."""
    stem, at, n = name.partition("@")
    known = stem in TOP_N_METRICS and re.fullmatch(r"[1-9]\d*", n) if at else name in METRICS
    if not known:
        raise InputError(f"metric: got {name!r}, expected one of {_METRICS}; as ndcg@10.")


def parse_duration(text: str) -> float:
    """``"90"``, ``"90s"``, ``"10m"``, ``"1.5h"`` or ``"1h30m"`` in seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip().lower():
        raise InputError(f"budget: got {text!r}, expected a time such as 90s, 10m or 1.5h.")
    total = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
    if total <= 0:
        raise InputError(f"budget: got {text!r}, expected more than 0 seconds.")
    return total

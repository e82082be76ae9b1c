"""One run: `train_run` makes the task of a request and trains it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from negwise.datasets import Source
from negwise.errors import InputError
from negwise.inference import TrainedModel, load
from negwise.jobs.arms import check_ceiling, parse_arm
from negwise.protocols import Rule
from negwise.records import CONFIG, JOB, RunConfig, RunResult, decode, encode, read_record
from negwise.requests import TrainRequest, identity_of
from negwise.requests.training_requests import parse_samplers
from negwise.schedule import check_rule, parse_rule
from negwise.schedule.typed_rules import DEFAULT_RULE, needs_data
from negwise.tasks import Task, make_task, max_negatives, query_candidates, with_recipe
from negwise.tasks.recipes import rate_schedule
from negwise.training import Display, EpochOrder, OpenRun, Settings, ShouldStop, open_run

OUT = "negwise-train"


@dataclass(frozen=True)
class TrainResult:
    """What a run came to: its folder, the content of ``result.json``, and the metric that counted."""

    folder: Path
    record: RunResult
    metric: str

    @property
    def model(self) -> TrainedModel:
        """The model with its best weights, ready to be used: see `negwise.load`."""
        return load(self.folder)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**encode(self.record), "out": str(self.folder)}


def train_run(
    request: TrainRequest,
    *,
    source: Source | None = None,
    should_stop: ShouldStop | None = None,
    until: int | None = None,
    show: bool | Display = True,
    any_k: bool = False,
) -> TrainResult:
    """Train in the folder ``request.out``; the same call again resumes, or returns the result that is there.

    ``source`` is the data where it was read already. A K that no row can have is refused, unless ``any_k``: then a row
    that has fewer negatives gives all it has. ``should_stop``, ``until`` and ``show``: see `negwise.training.fit`.
    """
    if request.k is not None:
        check_rule(request.k)  # before the data is read
    folder = Path(request.out or OUT)
    if (folder / JOB).exists():
        raise InputError(
            f"{folder}: the folder of a job (it has {JOB}), whose runs are inside. Choose another with --out."
        )
    request = with_recipe(_as_begun(request, folder))
    rule = request.k or default_k(request.negatives)
    request = replace(request, k=rule)
    task = make_task(request, source)
    if not needs_data(rule) and not any_k:
        most = max_negatives(task.data, request.negatives, request.pool, request.batch_size)
        check_ceiling(parse_arm(rule), most)
    record = fit_task(request, task, folder, should_stop=should_stop, until=until, show=show)
    assert request.metric is not None
    return TrainResult(folder, record, request.metric)


def fit_task(
    request: TrainRequest,
    task: Task,
    out: str | Path,
    *,
    rule: Rule | None = None,
    should_stop: ShouldStop | None = None,
    until: int | None = None,
    show: bool | Display = True,
) -> RunResult:
    """`train_run` with a task that is made; ``rule`` goes before that of ``request.k``."""
    with open_task(request, task, out, rule=rule, show=show) as run:
        return run.advance(until, should_stop)


def open_task(
    request: TrainRequest,
    task: Task,
    out: str | Path,
    *,
    rule: Rule | None = None,
    show: bool | Display = True,
    checkpoints: bool = True,
) -> AbstractContextManager[OpenRun]:
    """The run of a task, to be advanced in parts; without ``checkpoints`` one that is only timed."""
    request = with_recipe(request)
    assert request.batch_size is not None and request.metric is not None and request.precision is not None
    steps = steps_of(request, task)
    return open_run(
        out,
        task.model,
        task.examples,
        n_items=task.data.n_items,
        sampler=task.sampler,
        rule=rule or make_rule(request, task),
        settings=Settings(
            steps=steps,
            batch_size=request.batch_size,
            seed=request.seed,
            eval_every=request.eval_every,
            log_every=max(1, steps // 1000),
            correct=request.correct,
            precision=request.precision,
            device=request.device,
            threads=request.threads,
            tensorboard=request.tensorboard,
        ),
        loss=task.loss,
        splits=task.splits,
        metric=request.metric,
        optimizer=partial(make_optimizer, request),
        lr_scale=rate_schedule(request.warmup or 0, request.decay or 0.0, steps),
        mask_items=task.mask_items,
        config={"run": identity_of(request), "split": task.data.split},
        data_digest=task.data.digest,
        assets=partial(task.assets, request),
        popularity=task.data.popularity,
        show=show,
        checkpoints=checkpoints,
    )


def set_steps(run: OpenRun, request: TrainRequest, steps: int) -> None:
    """Let a paused run of ``request`` end after ``steps``."""
    assert request.eval_every is not None
    scale = rate_schedule(request.warmup or 0, request.decay or 0.0, steps)
    run.set_horizon(steps, request.eval_every, scale, run=identity_of(replace(request, steps=steps)))


def steps_of(request: TrainRequest, task: Task) -> int:
    """Steps of a request with its recipe: as typed, or so many epochs."""
    if request.steps is not None:
        return request.steps
    assert request.epochs is not None and request.batch_size is not None
    return request.epochs * EpochOrder(len(task.examples), request.batch_size, request.seed).steps_per_epoch


def make_optimizer(request: TrainRequest, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam, or AdamW where there is weight decay. Fused, it reads and writes all that it needs once."""
    assert request.learning_rate is not None
    if request.weight_decay:
        return torch.optim.AdamW(parameters, request.learning_rate, weight_decay=request.weight_decay, fused=True)
    return torch.optim.Adam(parameters, lr=request.learning_rate, fused=True)


def make_rule(request: TrainRequest, task: Task) -> Rule:
    """The rule of ``request.k``; ``metric`` and ``online`` learn the number of candidates and the most negatives."""
    text = request.k or default_k(request.negatives)
    if not needs_data(text):
        return parse_rule(text)
    if text.strip().lower().startswith("online") and (chosen := _chosen_negatives(request.negatives)):
        raise InputError(
            f"k: got online, but {chosen} negatives are not drawn at random, so their wins do not tell how far K "
            "should go. Type a number, as --k 100, or other --negatives, as uniform."
        )
    most = max_negatives(task.data, request.negatives, request.pool, request.batch_size)
    return parse_rule(
        text,
        metric=request.metric or "auc",
        candidates=query_candidates(task.data),
        max_k=min(most, request.max_k or most),
    )


def check_rules(request: TrainRequest, task: Task, rules: Sequence[str]) -> None:
    """Refuse rules that ``task`` cannot be trained with, before anything is."""
    most = max_negatives(task.data, request.negatives, request.pool, request.batch_size)
    for rule in rules:
        make_rule(replace(request, k=rule), task)
        if not needs_data(rule):
            check_ceiling(parse_arm(rule), most)


def default_k(negatives: str | None) -> str:
    """The rule where none is typed; the paper's 4 where negatives are chosen rather than drawn."""
    return DEFAULT_RULE if _chosen_negatives(negatives) is None else "4"


def _chosen_negatives(negatives: str | None) -> str | None:
    """The name of a sampler whose negatives say nothing of how the model ranks random ones, if one is asked for."""
    names = [spec.name for spec in parse_samplers(negatives)] if negatives else []
    return next((name for name in names if name in ("given", "hardest")), None)


def _as_begun(request: TrainRequest, folder: Path) -> TrainRequest:
    """``request`` with what the run in ``folder``, if there is one, began with, wherever it says nothing itself.

    So a run may resume on another device, whose recipe may differ.
    """
    if not (folder / CONFIG).exists():
        return request
    began = decode(TrainRequest, read_record(RunConfig, folder / CONFIG).run, str(folder / CONFIG))
    left = [one.name for one in fields(TrainRequest) if getattr(request, one.name) is None and one.name != "out"]
    if request.steps is not None or request.epochs is not None:
        left = [name for name in left if name not in ("steps", "epochs")]
    settings = {**began.settings, **request.settings} if request.recipe == began.recipe else request.settings
    return replace(request, settings=settings, **{name: getattr(began, name) for name in left})

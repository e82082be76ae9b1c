"""One run: `train_run` makes the task of a request and trains it; `load` opens what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.datasets import EMBEDDED, Source, TaskData
from negwise.errors import InputError
from negwise.jobs.arms import check_ceiling, parse_arm
from negwise.jobs.presets import default_model
from negwise.models import PAPER
from negwise.protocols import Rule, Sampler
from negwise.records import CONFIG, JOB, RunConfig, RunResult, decode, encode, read_record
from negwise.requests import TrainRequest, identity_of
from negwise.samplers import Given, Hardest
from negwise.schedule import check_rule, parse_rule
from negwise.schedule.typed_rules import needs_data
from negwise.tasks import Task, load_data, make_model, make_task, max_negatives, query_candidates
from negwise.training import Display, EpochOrder, Settings, ShouldStop, fit, load_weights

OUT = "negwise-train"


@dataclass(frozen=True)
class TrainResult:
    """What a run came to: its folder, and the content of ``result.json``."""

    folder: Path
    record: RunResult

    @property
    def model(self) -> Trained:
        """The model with its best weights, and its data."""
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
    check_rule(request.k)  # before the data is read
    arm = None if needs_data(request.k) else parse_arm(request.k)
    folder = Path(request.out or OUT)
    if (folder / JOB).exists():
        raise InputError(
            f"{folder}: the folder of a job (it has {JOB}), whose runs are inside. Choose another with --out."
        )
    if request.model is None:
        request = replace(request, model=default_model(request))
    assert request.model is not None
    task = make_task(request, source)
    if arm is not None and not any_k:
        batch_size = request.batch_size or PAPER[request.model].batch_size
        check_ceiling(arm, max_negatives(task.data, request.negatives, request.pool, batch_size))
    return TrainResult(folder, fit_task(request, task, folder, should_stop=should_stop, until=until, show=show))


def fit_task(
    request: TrainRequest,
    task: Task,
    out: str | Path,
    *,
    should_stop: ShouldStop | None = None,
    until: int | None = None,
    show: bool | Display = True,
) -> RunResult:
    """`train_run` with a task that is made."""
    assert request.model is not None
    paper = PAPER[request.model]
    batch_size = request.batch_size or paper.batch_size
    steps = request.steps
    if steps is None:
        epochs = request.epochs or paper.epochs
        steps = epochs * EpochOrder(len(task.examples), batch_size, request.seed).steps_per_epoch
    rate = request.learning_rate or paper.learning_rate
    return fit(
        out,
        task.model,
        task.examples,
        n_items=task.data.n_items,
        sampler=task.sampler,
        rule=make_rule(request, task),
        settings=Settings(
            steps=steps,
            batch_size=batch_size,
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
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=rate, fused=_on_gpu(request.device)),
        mask_items=task.mask_items,
        config={"run": identity_of(request), "split": task.data.split},
        data_digest=task.data.digest,
        assets=task.assets,
        until=until,
        should_stop=should_stop,
        popularity=task.data.popularity,
        show=show,
    )


def make_rule(request: TrainRequest, task: Task) -> Rule:
    """The rule of ``request.k``; ``metric`` and ``online`` learn the number of candidates and the most negatives."""
    if not needs_data(request.k):
        return parse_rule(request.k)
    if request.k.strip().lower().startswith("online"):
        _check_online(task.sampler)
    assert request.model is not None
    batch_size = request.batch_size or PAPER[request.model].batch_size
    most = max_negatives(task.data, request.negatives, request.pool, batch_size)
    return parse_rule(request.k, metric=request.metric, candidates=query_candidates(task.data), max_k=most)


def _check_online(sampler: Sampler) -> None:
    """Refuse a sampler whose negatives say nothing of how the model ranks random ones."""
    for one in (sampler, *getattr(sampler, "parts", ())):
        if isinstance(one, Given | Hardest):
            raise InputError(
                f"k: got online, but {type(one).__name__.lower()} negatives are not drawn at random, so their wins do "
                "not tell how far K should go. Type a number, as --k 100, or other --negatives, as uniform."
            )


def _on_gpu(device: str) -> bool | None:
    """Whether a run takes place on a GPU, where one kernel updates all weights; None leaves it to torch."""
    return True if device != "cpu" and torch.cuda.is_available() else None


@dataclass(frozen=True, eq=False)
class Trained:
    """A data set and the model that was trained on it, in evaluation mode."""

    data: TaskData
    model: Any

    def __repr__(self) -> str:
        return f"Trained({type(self.model).__name__}, {self.data.name}, {self.data.n_items} items)"

    def score(self, queries: Sequence[int], candidates: Sequence[int], split: str = "test") -> Tensor:
        """Scores (Q, N) of queries of a split, by number, and candidates, by id."""
        if split not in ("train", "val", "test"):
            raise InputError(f"split={split!r}, expected 'train', 'val' or 'test'.")
        examples = getattr(self.data, split)
        query = examples.batch(_numbers("queries", queries, len(examples))).query
        with torch.no_grad():

            def item_vectors(ids: Tensor) -> Tensor:
                return self.model.encode_candidates(ids.flatten()).view(*ids.shape, -1)

            wanted = torch.from_numpy(_numbers("candidates", candidates, self.data.n_items))
            return self.model.encode_queries(query, item_vectors) @ self.model.encode_candidates(wanted).T


def _numbers(name: str, given: Sequence[int], total: int) -> NDArray[np.int64]:
    """Whole numbers (n,) from 0 to ``total`` - 1."""
    found = np.asarray(given)
    if found.ndim != 1 or (found.size and not np.issubdtype(found.dtype, np.integer)):
        raise InputError(f"{name}: got {found.dtype} of shape {found.shape}, expected a list of whole numbers.")
    if found.size and not 0 <= found.min() <= found.max() < total:
        raise InputError(f"{name}: got {found.min()} to {found.max()}, expected numbers from 0 to {total - 1}.")
    return found.astype(np.int64)


def load(out: str | Path, *, data: str | Path | None = None) -> Trained:
    """The model of a run with its best weights so far, and its data; ``data`` is where that is now, if it moved."""
    folder = Path(out)
    if not (folder / CONFIG).exists():
        raise InputError(f"{folder}: no {CONFIG} there, expected the folder of a run. Pass what --out was.")
    config = read_record(RunConfig, folder / CONFIG)
    request = decode(TrainRequest, config.run, str(folder / CONFIG))
    if data is not None:
        request = replace(request, data=str(data))
    elif request.data not in EMBEDDED and not Path(request.data).exists():
        raise InputError(
            f"{folder}: its data, {request.data}, is not there, seen from {Path.cwd()}. Pass where it is: "
            "load(out, data=...)."
        )
    found = load_data(request)
    if found.digest != config.data_digest:
        raise InputError(
            f"{folder}: the data changed since this run, so its numbers mean other items. Restore {config.run['data']}."
        )
    model = make_model(request, found)
    load_weights(model, folder)
    return Trained(found, model.eval())

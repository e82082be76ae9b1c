"""The entry: `open_run` opens a run folder and resumes what is there; `fit` also trains to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from negwise.errors import InputError, require
from negwise.files import lock_folder
from negwise.losses import info_nce
from negwise.metrics import Ranks
from negwise.metrics.model_ranking import EvaluationSplit
from negwise.protocols import Loss, OpenLoopRule, Rule, Sampler
from negwise.records import RunResult, read_result
from negwise.training import checkpoint
from negwise.training.batches import BatchPreparer, EpochOrder, Ints, MaskItems, TrainingExamples, stateful_samplers
from negwise.training.cuda_graphs import pad_sizes, resolve_graphs, use_graphs
from negwise.training.evaluation import Evaluation
from negwise.training.forward_pass import TrainingStep
from negwise.training.journal import Display, Journal, Silent, display
from negwise.training.k_control import KController
from negwise.training.launch import (
    SignalGuard,
    fixed_threads,
    kept_memory,
    make_fabric,
    own_generators,
    resolve_threads,
)
from negwise.training.loop import Run, RunState, ShouldStop
from negwise.training.optimization import Optimization
from negwise.training.run_folder import check_config, fingerprint, write_assets, write_config
from negwise.training.settings import Settings

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The paper's: Adam with a learning rate of 1e-4."""
    return torch.optim.Adam(parameters, lr=1e-4)


def fit(
    out: str | Path,
    model: nn.Module,
    examples: TrainingExamples,
    *,
    until: int | None = None,
    should_stop: ShouldStop | None = None,
    **parts: Any,
) -> RunResult:
    """Train ``model`` on ``examples`` in the run folder ``out``; the same call again resumes, or returns the result.

    ``parts`` are those of `open_run`. ``until`` pauses the run after that many steps; ``settings.steps`` stays the
    horizon of every schedule, so that the same call with another ``until`` continues to the same bits.
    ``should_stop(log)`` looks at the log after each evaluation and may end the run there; it must follow from the log
    alone, so that a resumed run ends at the same step. Returns the result, in which ``finished`` is false after a
    pause; ``model`` ends with the weights of the last step, on the device of the run. Of a run that had ended before
    and kept its best weights alone, those.

    Ctrl-C ends with `Stopped` once the step is saved.
    """
    with open_run(out, model, examples, **parts) as run:
        return run.advance(until, should_stop)


@contextmanager
def open_run(
    out: str | Path,
    model: nn.Module,
    examples: TrainingExamples,
    *,
    n_items: int,
    sampler: Sampler,
    rule: Rule,
    settings: Settings,
    loss: Loss = info_nce,
    splits: Mapping[str, EvaluationSplit] | None = None,
    metric: str = "auc",
    optimizer: MakeOptimizer = adam,
    lr_scale: Callable[[float], float] | None = None,
    mask_items: MaskItems | None = None,
    config: Mapping[str, Any] | None = None,
    data_digest: str = "",
    assets: Callable[[], Mapping[str, bytes]] = dict,
    popularity: Ints | None = None,
    show: bool | Display = True,
    checkpoints: bool = True,
) -> Iterator[OpenRun]:
    """The run of ``model`` in the folder ``out``, to be advanced in parts; it resumes what is there.

    ``loss`` is called as `negwise.losses.info_nce` is, with ``reduction="none"``. ``splits``: how to evaluate "train",
    "val" and "test"; the first two at each evaluation, test once, with the weights of the step whose validation value
    of ``metric`` was best. ``lr_scale(fraction)`` scales the learning rates, fraction = step / (steps - 1).
    ``mask_items`` masks items of sequences. A run refuses to resume if ``config`` (plain JSON) or ``data_digest``
    has changed; a paused one may get another horizon. ``assets()``, files by name, make the model usable without its
    data; called where they are missing. ``popularity`` (n_items,), counts in training, adds to the result what the
    model recommends. ``show`` may be a display of one's own. Without ``checkpoints`` nothing can be resumed, nor tested
    at the end: for runs that are only timed.
    """
    if settings.tensorboard:
        require("tensorboard", extra="tensorboard")
    folder = Path(out)
    torch_optimizer = optimizer(model.parameters())
    whole = {
        **(config or {}),
        "training": {
            **settings.config(not isinstance(rule, OpenLoopRule)),
            "rule": repr(rule),
            **_choices(loss, metric),
        },
        "optimizer": {"name": type(torch_optimizer).__name__, **_optimizer_settings(torch_optimizer)},
        "data_digest": data_digest,
    }
    check_config(folder, whole, paused=lambda: _state_of(checkpoint.latest(folder)).paused)
    result = read_result(folder)
    if result is not None:
        last = folder / checkpoint.FOLDER / str(result.steps)
        checkpoint.load_weights(model, last if last.exists() else folder / result.weights)
        yield OpenRun(None, model, result)
        return
    fabric = make_fabric(settings.device, settings.precision)
    first = fabric.global_rank == 0
    with lock_folder(folder, "run") if first else nullcontext():
        found = checkpoint.latest(folder)
        state = _state_of(found)
        header: dict[str, Any] = {"config": fingerprint(whole)}
        step_module, optimizer_of_fabric = fabric.setup(TrainingStep(model, loss), torch_optimizer)
        rates = [group["lr"] for group in torch_optimizer.param_groups]
        if found is not None:
            checkpoint.restore(found, header["config"], model, torch_optimizer, stateful_samplers(sampler))
        threads_before = None if found is None else int(found.state["threads"])
        header["threads"] = resolve_threads(settings.threads, threads_before, may_change=state.paused)
        had = None if found is None else bool(found.state.get("graphs", settings.graphs))
        graphs = use_graphs(
            resolve_graphs(settings.graphs, had), fabric, model, torch_optimizer, loss, moving=lr_scale is not None
        )
        header["graphs"] = graphs
        fabric.barrier()  # every rank has looked at the folder before one of them writes there
        if first:
            checkpoint.clean(folder)
            write_config(folder, whole)
            write_assets(folder, assets)
        shown = _display(show, settings.steps, state.step, metric) if first else Silent()
        if had and not graphs:
            shown.say("This run began with CUDA graphs, which are not available here. It continues without them.")
        batches = BatchPreparer(
            examples,
            EpochOrder(len(examples), settings.batch_size, settings.seed),
            sampler,
            model,
            n_items,
            settings.correct,
            mask_items,
            fabric,
            plans=graphs,
            pad=pad_sizes if graphs else None,
        )
        with Journal(folder, state.step, shown, settings.tensorboard, keep=first) as journal:
            if threads_before is not None and threads_before != header["threads"]:
                journal.event("threads", state.step, f"{threads_before} before, {header['threads']} from here on")
            run = Run(
                folder,
                fabric,
                model,
                step_module,
                Optimization(optimizer_of_fabric, rates, lr_scale),
                batches,
                KController(rule, settings.steps, settings.lag, state.step, state.k),
                Evaluation(splits or {}, metric, popularity, fabric.autocast),
                settings,
                journal,
                SignalGuard(),
                header,
                state,
                graphs,
                checkpoints,
            )
            try:
                yield OpenRun(run, model, whole=whole)
            finally:
                run.close()


@dataclass(eq=False)
class OpenRun:
    """A run between its parts: weights, optimizer and graphs stay in memory. ``run`` is None where it has ended."""

    run: Run | None
    model: nn.Module
    result: RunResult | None = None
    whole: dict[str, Any] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Updates so far."""
        if self.run is None:
            assert self.result is not None
            return self.result.steps
        return self.run.state.step

    def advance(self, until: int | None = None, should_stop: ShouldStop | None = None) -> RunResult:
        """Train until the end, or until so many steps; see `fit`."""
        if self.run is None or (self.result is not None and self.result.finished):
            assert self.result is not None
            return self.result
        run = self.run
        if until is not None and until < 0:
            raise InputError(f"until={until}, expected a step from 0 to {run.settings.steps}")
        with fixed_threads(run.header["threads"]), kept_memory(), own_generators(run.fabric.device), run.signals:
            self.result = run.go(until, should_stop)
        return self.result

    def ranks(self, split: str = "val") -> Ranks:
        """The rank of every positive of a split, with the weights of now."""
        assert self.run is not None
        run = self.run
        with fixed_threads(run.header["threads"]), kept_memory(), own_generators(run.fabric.device), run.signals:
            return run.ranks(split)

    def set_horizon(
        self, steps: int, eval_every: int, lr_scale: Callable[[float], float] | None, **config: Any
    ) -> None:
        """Let a paused run end after ``steps``. What came before must be as with the horizon that it had.

        ``config`` are the entries of `open_run`'s that change with it.
        """
        run = self.run
        if run is None or not run.state.paused or steps < run.state.step:
            raise InputError(f"steps={steps}: only a paused run can get another horizon, and none in its past.")
        run.settings = replace(run.settings, steps=steps, eval_every=eval_every)
        run.controller.total_steps = steps
        run.optimization.scale = lr_scale
        training = {**self.whole["training"], "steps": steps, "eval_every": eval_every}
        self.whole = {**self.whole, **config, "training": training}
        check_config(run.out, self.whole, paused=lambda: True)
        if run.fabric.global_rank == 0:
            write_config(run.out, self.whole)


def _state_of(found: checkpoint.Checkpoint | None) -> RunState:
    return RunState() if found is None else RunState(**found.state["state"])


def _choices(loss: Loss, metric: str) -> dict[str, Any]:
    """What a run says of its loss and metric, where they are not the usual ones."""
    chosen = {} if loss is info_nce else {"loss": _name_of(loss)}
    return chosen if metric == "auc" else {**chosen, "metric": metric}


def _name_of(loss: Any) -> str:
    """A name that is the same in the next process, which the address in a function's ``repr`` is not."""
    if isinstance(loss, partial):
        return f"{_name_of(loss.func)}({', '.join(map(repr, (*loss.args, *sorted(loss.keywords.items()))))})"
    return f"{loss.__module__}.{loss.__qualname__}" if hasattr(loss, "__qualname__") else repr(loss)


def _optimizer_settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What an optimizer does; how it does it depends on the device, which a run may change."""
    how = ("foreach", "fused", "capturable", "differentiable")
    return {name: value for name, value in optimizer.defaults.items() if name not in how}


def _display(show: bool | Display, steps: int, step: int, metric: str) -> Display:
    if isinstance(show, bool):
        return display(steps, step, metric=metric) if show else Silent()
    return show

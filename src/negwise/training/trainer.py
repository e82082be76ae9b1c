"""The entry: `fit` opens a run folder, resumes what is there, and trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from negwise.errors import InputError, require
from negwise.files import lock_folder
from negwise.losses import info_nce
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
from negwise.training.launch import SignalGuard, fixed_threads, make_fabric, own_generators, resolve_threads
from negwise.training.loop import Optimization, Run, RunState, ShouldStop
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
    until: int | None = None,
    should_stop: ShouldStop | None = None,
    popularity: Ints | None = None,
    show: bool | Display = True,
) -> RunResult:
    """Train ``model`` on ``examples`` in the run folder ``out``; the same call again resumes, or returns the result.

    ``loss`` is called as `negwise.losses.info_nce` is, with ``reduction="none"``. ``splits``: how to evaluate "train",
    "val" and "test"; the first two at each evaluation, test once, with the weights of the step whose validation value
    of ``metric`` was best. ``lr_scale(fraction)`` scales the learning rates, fraction = step / (steps - 1).
    ``mask_items`` masks items of sequences. A run refuses to resume if ``config`` (plain JSON) or ``data_digest``
    has changed. ``assets()``, files by name, make the model usable without its data; called where they are missing.

    ``until`` pauses the run after that many steps; ``settings.steps`` stays the horizon of every schedule, so that the
    same call with another ``until`` continues to the same bits. ``should_stop(log)`` looks at the log after each
    evaluation and may end the run there; it must follow from the log alone, so that a resumed run ends at the same
    step. ``popularity`` (n_items,), counts in training, adds to the result what the model recommends. ``show`` may be
    a display of one's own. Returns the result, in which ``finished`` is false after a pause; ``model`` ends with the
    weights of the last step, on the device of the run.

    Ctrl-C ends with `Stopped` once the step is saved.
    """
    if settings.tensorboard:
        require("tensorboard", extra="tensorboard")
    if until is not None and until < 0:
        raise InputError(f"until={until}, expected a step from 0 to {settings.steps}")
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
    check_config(folder, whole)
    result = read_result(folder)
    if result is not None:
        checkpoint.load_weights(model, checkpoint.read_checkpoint(folder, result.steps).folder)
        return result
    fabric = make_fabric(settings.device, settings.precision)
    first = fabric.global_rank == 0
    with lock_folder(folder, "run") if first else nullcontext():
        found = checkpoint.latest(folder)
        state = RunState()
        header: dict[str, Any] = {"config": fingerprint(whole)}
        step_module, optimizer_of_fabric = fabric.setup(TrainingStep(model, loss), torch_optimizer)
        rates = [group["lr"] for group in torch_optimizer.param_groups]
        if found is not None:
            checkpoint.restore(found, header["config"], model, torch_optimizer, stateful_samplers(sampler))
            state = RunState(**found.state["state"])
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
        with (
            fixed_threads(header["threads"]),
            own_generators(fabric.device),
            SignalGuard() as signals,
            Journal(folder, state.step, shown, settings.tensorboard, keep=first) as journal,
        ):
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
                signals,
                header,
                state,
                graphs,
                should_stop,
                until,
            )
            return run.go()


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

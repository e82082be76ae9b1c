"""The door: `fit` opens a run folder, takes up what is there, and lets the run go on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from negwise.errors import require
from negwise.protocols import Rule, Sampler
from negwise.training import checkpoint
from negwise.training.batches import Examples, Ints, MaskItems
from negwise.training.cuda_graphs import resolve_graphs, use_graphs
from negwise.training.holding import lock_folder
from negwise.training.journal import Journal
from negwise.training.judging import EvaluationSplit
from negwise.training.launch import fixed_threads, make_fabric, own_generators, resolve_threads
from negwise.training.progress import Display, Silent, display
from negwise.training.run import Run, ShouldStop, State
from negwise.training.run_folder import RESULT, check_config, fingerprint, read_json, write_config
from negwise.training.settings import Settings
from negwise.training.step import TrainingStep
from negwise.training.stopping import SignalGuard

MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The paper's: Adam with a learning rate of 1e-4."""
    return torch.optim.Adam(parameters, lr=1e-4)


def fit(
    out: str | Path,
    model: nn.Module,
    examples: Examples,
    *,
    n_items: int,
    sampler: Sampler,
    rule: Rule,
    settings: Settings,
    judged: Mapping[str, EvaluationSplit] | None = None,
    optimizer: MakeOptimizer = adam,
    lr_scale: Callable[[float], float] | None = None,
    mask_items: MaskItems | None = None,
    config: Mapping[str, Any] | None = None,
    data_digest: str = "",
    should_stop: ShouldStop | None = None,
    popularity: Ints | None = None,
    show: bool | Display = True,
) -> dict[str, Any]:
    """Train ``model`` on ``examples`` in the run folder ``out``; the same call again goes on, or returns the result.

    ``judged``: how to evaluate "train", "val" and "test" (`negwise.training.judged`); the first two at each evaluation,
    test once, with the weights of the step whose validation AUC was best. ``lr_scale(fraction)`` scales the learning
    rates, fraction = step / (steps - 1). ``mask_items`` makes a cloze of the examples. ``config``, plain JSON, and
    ``data_digest`` say what the parts are made of: a run does not go on with others. ``should_stop(log)`` looks at the
    log after each evaluation and may end the run there; it must follow from the log alone, so that a resumed run ends
    at the same step. ``popularity`` (n_items,), counts in training, adds to the result what the model recommends.
    ``show`` may be a display of one's own. Returns what ``result.json`` has; ``model`` ends with the weights of the
    last step, on the device of the run.

    Ctrl-C ends with `Stopped` once the step is saved.
    """
    if settings.tensorboard:
        require("tensorboard", extra="tensorboard")
    folder, judged = Path(out), judged or {}
    tuner = optimizer(model.parameters())
    whole = {
        **(config or {}),
        "training": {**settings.config(), "rule": repr(rule)},
        "optimizer": {"name": type(tuner).__name__, **_what(tuner)},
        "data_digest": data_digest,
    }
    check_config(folder, whole)
    if (folder / RESULT).exists():
        result = read_json(folder / RESULT)
        checkpoint.load_weights(model, checkpoint.read(folder, result["steps"]).folder)
        return result
    fabric = make_fabric(settings.device, settings.precision)
    with lock_folder(folder, "run") if fabric.global_rank == 0 else nullcontext():
        found = checkpoint.latest(folder)
        threads = resolve_threads(settings.threads, None if found is None else found.state["threads"])
        header: dict[str, Any] = {"config": fingerprint(whole), "threads": threads}
        stepper, tuned = fabric.setup(TrainingStep(model), tuner)
        rates = [group["lr"] for group in tuner.param_groups]
        state = State(rule=rule.init())
        if found is not None:
            checkpoint.restore(found, header["config"], model, tuner)
            state = State(**found.state["state"])
        had = None if found is None else bool(found.state.get("graphs", settings.graphs))
        graphs = use_graphs(resolve_graphs(settings.graphs, had), fabric, model, tuner, moving=lr_scale is not None)
        header["graphs"] = graphs
        fabric.barrier()  # every rank has looked at the folder before one of them writes there
        first = fabric.global_rank == 0
        if first:
            checkpoint.clean(folder)
            write_config(folder, whole)
        shown = _display(show, settings.steps, state.step) if first else Silent()
        if had and not graphs:
            shown.say("this run began with CUDA graphs, which cannot be had here, and goes on without")
        with (
            fixed_threads(threads),
            own_generators(fabric.device),
            SignalGuard() as stopping,
            Journal(folder, state.step, shown, settings.tensorboard, keep=first) as journal,
        ):
            run = Run(
                folder, fabric, model, stepper, tuned, rates, lr_scale, examples, n_items, mask_items, sampler, rule,
                settings, judged, journal, stopping, header, state, graphs, should_stop, popularity,
            )  # fmt: skip
            return run.go()


def _what(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """What an optimizer does; how it does it goes with the device, which a run may change."""
    how = ("foreach", "fused", "capturable", "differentiable")
    return {name: value for name, value in optimizer.defaults.items() if name not in how}


def _display(show: bool | Display, steps: int, step: int) -> Display:
    if isinstance(show, bool):
        return display(steps, step) if show else Silent()
    return show

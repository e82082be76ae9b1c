"""Checkpoints: ``checkpoints/<step>/`` with weights, optimizer and samplers as safetensors, and state.json.

A folder is written under another name and renamed when all of it is on the disk, so that a checkpoint is whole or
absent. Nothing is pickled. The state has the digests of the other files and of itself, so that later damage shows.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from negwise.files import write_atomically
from negwise.records.checkpoint_records import (
    FOLDER,
    OPTIMIZER,
    SAMPLERS,
    STATE,
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    best_step,
    checked,
    digest_of,
    latest,
    own_digest,
    read_checkpoint,
    read_state,
    steps,
)
from negwise.records.run_records import RESULT, read_result

__all__ = [
    "FOLDER",
    "Checkpoint",
    "CheckpointError",
    "clean",
    "keep_best",
    "latest",
    "load_weights",
    "read_checkpoint",
    "restore",
    "steps",
    "write",
]
WRITING = ".writing-"
KEEP = 2


def write(
    out: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    samplers: Mapping[str, Mapping[str, Any]] | None = None,
) -> Path:
    """Write the checkpoint of ``step``; ``state`` is plain JSON, ``samplers`` the states of samplers that have one.

    Then drop all but the last two and the best one.
    """
    home = out / FOLDER
    target, temporary = home / str(step), home / f"{WRITING}{step}"
    tensors, groups = _flat(optimizer.state_dict())
    files = {WEIGHTS: save(_unshared(model.state_dict())), OPTIMIZER: save(tensors)}
    body = {**state, "step": step, "optimizer": groups}
    if samplers:
        own, body["samplers"] = _split_tensors(samplers)
        files[SAMPLERS] = save(_unshared(own))
    digests = {name: digest_of(content) for name, content in files.items()}
    body["files"] = digests
    files[STATE] = json.dumps({**body, "digest": own_digest(body)}, indent=1).encode()
    try:
        clean(out)
        temporary.mkdir(parents=True)
        for name, content in files.items():
            write_file(temporary / name, content)
        if target.exists() and read_state(target)["files"] == digests:
            # After a stop in the middle of an evaluation, which left these weights here: only the state is new.
            (temporary / STATE).replace(target / STATE)
        else:
            temporary.replace(target)
        _sync_folder(home)
        clean(out)
        _prune(out)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        left = steps(out)
        stands = f"step {left[-1]} is safe in {home / str(left[-1])}" if left else "no checkpoint was written before"
        raise CheckpointError(
            f"could not write the checkpoint of step {step}: {error.strerror or error} ({home}). Nothing is lost up to "
            f"the one before: {stands}. Make room and type the same command again"
        ) from error
    return target


def write_file(path: Path, content: bytes) -> None:
    """Write ``content`` and wait until it is on the disk."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def restore(
    found: Checkpoint,
    config: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    samplers: Sequence[Any] = (),
) -> None:
    """Restore weights, optimizer and ``samplers``, in a run whose config has the fingerprint ``config``."""
    if found.state["config"] != config:
        raise CheckpointError(f"{found.folder} belongs to another run: its config is not the one of this run")
    checked(found.folder.parent / str(best_step(found.state, found.step)))  # the end of the run will want it
    load_weights(model, found.folder)
    tensors = load((found.folder / OPTIMIZER).read_bytes())
    optimizer.load_state_dict(_nested(tensors, found.state["optimizer"]))
    if samplers:
        states = _join_tensors(load((found.folder / SAMPLERS).read_bytes()), found.state["samplers"])
        for number, sampler in enumerate(samplers):
            sampler.load_state_dict(states[str(number)])


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> nn.Module:
    """``model`` with the weights of a checkpoint folder, or of the best (else last) checkpoint of a run folder."""
    folder = Path(path)
    if (folder / STATE).exists():
        checked(folder)
    else:
        found = latest(folder)
        if found is None:
            raise CheckpointError(f"{folder}: no checkpoint here. Pass the folder of a run or one of its checkpoints")
        folder = read_checkpoint(folder, best_step(found.state, found.step)).folder
    weights = load((folder / WEIGHTS).read_bytes())
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{folder}: these weights are of another model. {error}") from error
    return model


def clean(out: Path) -> None:
    """Remove what a killed writer left behind."""
    for entry in (out / FOLDER).glob(f"{WRITING}*"):
        shutil.rmtree(entry)


def _prune(out: Path) -> None:
    """Keep the last two and the best: the best as each of the two knows it, so that either can be gone on from."""
    last = steps(out)[-KEEP:]
    _keep(out, {*last, *(best_step(read_state(out / FOLDER / str(step)), step) for step in last)})


def keep_best(out: Path, *, optimizer: bool = True) -> None:
    """Of the run in ``out``, which has ended, keep the best checkpoint alone; its weights alone without ``optimizer``.

    May be called again, also where a kill ended the call before.
    """
    result = read_result(out)
    if result is None:
        raise CheckpointError(f"{out}: no {RESULT} here. A run that has not ended needs its checkpoints")
    folder = out / result.weights
    _keep(out, {int(folder.name)})
    if optimizer:
        return
    body = read_state(folder)
    if body["files"].keys() > {WEIGHTS}:
        body |= {"files": {WEIGHTS: body["files"][WEIGHTS]}, "optimizer": None, "samplers": None}
        write_atomically(folder / STATE, json.dumps({**body, "digest": own_digest(body)}, indent=1))
    for name in (OPTIMIZER, SAMPLERS):
        (folder / name).unlink(missing_ok=True)


def _keep(out: Path, kept: set[int]) -> None:
    for step in set(steps(out)) - kept:
        # Renamed first: a folder that is half removed must not look like a checkpoint.
        (out / FOLDER / str(step)).replace(out / FOLDER / f"{WRITING}gone-{step}")
    clean(out)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unshared(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU: safetensors takes no two names for one memory, and tied weights may be saved twice."""
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}


def _split_tensors(states: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """States by name as tensors called ``<name>.<entry>``, and the rest as JSON."""
    named = {f"{name}.{entry}": value for name, state in states.items() for entry, value in state.items()}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    rest = {
        name: {entry: value for entry, value in state.items() if not isinstance(value, Tensor)}
        for name, state in states.items()
    }
    return tensors, rest


def _join_tensors(tensors: Mapping[str, Tensor], rest: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    states = {name: dict(state) for name, state in rest.items()}
    for key, value in tensors.items():
        name, entry = key.split(".", 1)
        states[name][entry] = value
    return states


def _flat(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimizer's state as tensors called ``<parameter>.<name>``, and the rest as JSON."""
    named = {f"{at}.{name}": value for at, values in state["state"].items() for name, value in values.items()}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    plain = {name: value for name, value in named.items() if not isinstance(value, Tensor)}
    groups = [
        {name: float(value) if isinstance(value, Tensor) else value for name, value in group.items()}
        for group in state["param_groups"]
    ]
    return _unshared(tensors), {"plain": plain, "groups": groups}


def _nested(tensors: Mapping[str, Tensor], rest: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **rest["plain"]}.items():
        at, name = key.split(".", 1)
        nested.setdefault(int(at), {})[name] = value
    groups = [{name: _tuples(value) for name, value in group.items()} for group in rest["groups"]]
    return {"state": nested, "param_groups": groups}


def _tuples(value: Any) -> Any:
    """JSON has no tuples; among an optimizer's settings only ``params`` is a list, which may be either."""
    return tuple(value) if isinstance(value, list) else value

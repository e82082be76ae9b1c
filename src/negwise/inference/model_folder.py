"""Finding a model: a job's winner, a run or an exported folder, checked file by file before anything is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor

from negwise.errors import InputError, quote, require
from negwise.records import (
    ASSETS,
    CONFIG,
    JOB,
    MODEL,
    RESULTS,
    ModelRecord,
    Outcome,
    Results,
    read_checked,
    read_model_record,
    read_record,
    read_result,
    read_run,
)
from negwise.records.checkpoint_records import STATE, WEIGHTS, CheckpointError, best_step, checked, latest


@dataclass(frozen=True)
class ModelFolder:
    """A model on disk: ``files`` has its ``model.json``; ``checkpoint`` its weights, None where they lie in ``files``.

    ``path`` is the run or the exported folder.
    """

    path: Path
    files: Path
    record: ModelRecord
    checkpoint: Path | None = None

    def weight_bytes(self) -> bytes:
        """The file of the weights, as it was written."""
        if self.checkpoint is None:
            return read_checked(self.files, WEIGHTS, self.record)
        return _checkpoint_weights(self.checkpoint)

    def weights(self) -> dict[str, Tensor]:
        """The weights by name, on the CPU, each finite."""
        path = (self.checkpoint or self.files) / WEIGHTS
        try:
            found = load_tensors(self.weight_bytes())
        except SafetensorError as error:
            raise InputError(f"{path}: no safetensors ({error}). Copy the folder again, whole.") from error
        broken = [name for name, values in found.items() if not bool(torch.isfinite(values).all())]
        if broken:
            raise InputError(
                f"{path}: {', '.join(broken[:3])} holds values that are not finite: training went astray. Train again "
                "with a smaller --learning-rate."
            )
        return found

    def table(self, name: str) -> Any:
        """The Arrow table ``name``; None where the model has none."""
        if name not in self.record.files:
            return None
        pa = require("pyarrow", extra="train")
        try:
            return pa.ipc.open_file(pa.py_buffer(read_checked(self.files, name, self.record))).read_all()
        except pa.ArrowInvalid as error:
            raise InputError(f"{self.files / name}: no Arrow file ({error}). Copy the folder again, whole.") from error

    @cached_property
    def outcome(self) -> Outcome:
        """What the run came to, as far as it went."""
        return self.record.outcome or run_outcome(self.path)


def find_model(path: str | PathLike[str]) -> ModelFolder:
    """The model of a job (its winner), of a run (its best weights so far), or of an exported folder."""
    if not isinstance(path, str | PathLike):
        raise InputError(f"load: got {quote(path)}, expected the folder of a job, of a run, or one that export made.")
    folder = Path(path)
    if not folder.is_dir():
        came = "a file" if folder.exists() else "not there"
        raise InputError(f"{folder}: {came}, expected the folder of a job, of a run, or one that export made.")
    if (folder / RESULTS).exists() or (folder / JOB).exists():
        return _winner(folder)
    if (folder / CONFIG).exists():
        return _run(folder)
    if (folder / MODEL).exists():
        record = read_model_record(folder)
        if WEIGHTS not in record.files:
            raise InputError(f"{folder}: a part of a run, without weights. Pass the run's folder, {folder.parent}.")
        return ModelFolder(folder, folder, record)
    raise InputError(
        f"{folder}: none of {RESULTS}, {CONFIG} and {MODEL} is there, expected the folder of a job, of a run, or one "
        "that export made. Pass what --out was; if the folder was copied, copy it again, whole."
        f"{_model_of_before(folder)}"
    )


def _model_of_before(folder: Path) -> str:
    """Where the model is of a job that is going on."""
    before = max(folder.glob("before-*"), key=lambda one: one.stat().st_mtime, default=None)
    return "" if before is None else f" The model of before is in {before}."


def run_outcome(run: Path) -> Outcome:
    """What is known of a run, from its records and those of the job that it belongs to."""
    return replace(_own_outcome(run), k_origin=_k_origin(run.resolve()))


def _own_outcome(run: Path) -> Outcome:
    result, log = read_result(run), read_run(run)
    last = log.steps[-1] if log.steps else None
    known = Outcome(k=None if last is None else last.k, k_reason=None if last is None else last.k_reason)
    if result is None:
        return known
    return Outcome(
        scores=result.evaluations.get("test"),
        k=known.k,
        k_reason=known.k_reason,
        steps=result.steps,
        best_step=None if result.best is None else result.best.step,
        parameters=result.parameters,
        seconds=result.seconds,
    )


def _k_origin(run: Path) -> str | None:
    """How a job came to the rule for K of its ``run``, in words."""
    job = next((one for one in run.parents if (one / JOB).is_file() and (one / RESULTS).is_file()), None)
    if job is None:
        return None
    results = read_record(Results, job / RESULTS)
    name = run.relative_to(job).as_posix()
    arm = next((one for one in results.arms if any(seed.run == name for seed in one.seeds)), None)
    if arm is None or arm.role == "model":  # nothing of it, or the main job, whose rule is what was asked for
        return None
    origin = "it follows from the paper's estimate of K*" if arm.uses_pilot else "it is one of those that a job tried"
    if arm.name == results.chosen and len([one for one in results.arms if one.done]) > 1:
        origin += ", and was best on validation"
    return origin


def _winner(folder: Path) -> ModelFolder:
    if not (folder / RESULTS).exists():
        raise InputError(
            f"{folder}: a job without {RESULTS}: it has not ended. Type the same command again."
            f"{_model_of_before(folder)}"
        )
    results = read_record(Results, folder / RESULTS)
    if results.model is None:
        raise InputError(f"{folder}: no run of this job came to an end; each says why in its failed.json.")
    run = folder / results.model
    if not run.is_dir():
        raise InputError(f"{run}: not there, but {RESULTS} names it as the model. Copy the job's folder again, whole.")
    return _run(run)


def _run(folder: Path) -> ModelFolder:
    files = folder / ASSETS
    if not (files / MODEL).exists():
        raise InputError(
            f"{files / MODEL}: not there. The run ended before its first step, its folder was copied in part, or a "
            "negwise of before trained it. Copy it again, whole, or train again."
        )
    record = read_model_record(files)
    result = read_result(folder)
    if result is not None:
        return ModelFolder(folder, files, record, folder / result.weights)
    try:
        last = latest(folder)
    except CheckpointError as error:
        raise InputError(str(error)) from error
    if last is None:
        raise InputError(f"{folder}: no checkpoint yet, so there are no weights. Type the same command again.")
    return ModelFolder(folder, files, record, last.folder.parent / str(best_step(last.state, last.step)))


def _checkpoint_weights(folder: Path) -> bytes:
    if not (folder / STATE).exists():
        raise InputError(f"{folder / STATE}: not there. Copy the run's folder again, whole.")
    try:
        return (checked(folder, WEIGHTS).folder / WEIGHTS).read_bytes()
    except CheckpointError as error:
        raise InputError(f"{error}. If the folder was copied, copy it again, whole.") from error

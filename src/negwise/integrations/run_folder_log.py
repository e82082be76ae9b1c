"""The folder of a run for ``negwise report``, written while somebody else's loop trains: config, log and result."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from negwise import distributed
from negwise.errors import InputError
from negwise.files import write_json
from negwise.integrations.rule_identity import describe
from negwise.integrations.step_control import StepControl
from negwise.records import (
    CONFIG,
    LOG,
    RESULT,
    BestStep,
    EvalRecord,
    EventRecord,
    RunConfig,
    RunLogWriter,
    RunResult,
    Scores,
    StepRecord,
    encode,
    read_run,
)


class RunFolderLog:
    """``folder`` with ``config.json``, ``run.jsonl`` and, at the end, ``result.json``. Only rank 0 writes.

    ``rule`` is K as it was typed, ``settings`` what else the page shall show.
    """

    def __init__(self, folder: str | Path, rule: str, seed: int, settings: dict[str, Any]) -> None:
        self.folder, self.rule, self.seed, self.settings = Path(folder), rule, seed, settings
        self._began = time.monotonic()
        self._writer: RunLogWriter | None = None
        self._scores: dict[str, Scores] = {}
        self._best: BestStep | None = None

    @property
    def begun(self) -> bool:
        """Whether this process is writing."""
        return self._writer is not None

    def begin(self, step: int) -> None:
        """Training begins, or goes on, at ``step``. A folder that holds another run is refused."""
        if distributed.process_rank():
            return
        config = RunConfig(run={"k": self.rule, "seed": self.seed}, training=self.settings)
        again = (self.folder / LOG).exists()
        if again and step == 0:
            raise InputError(f"{self.folder}: holds the {LOG} of a run, and this one is new. Pass a new folder as run=")
        write_json(self.folder / CONFIG, encode(config))
        self._writer = RunLogWriter(self.folder / LOG)
        self._writer.append(EventRecord("resume" if again else "start", step))
        if again:
            for record in read_run(self.folder).evals:
                self._remember(record.split, int(record.step), record)
        self._began = time.monotonic()

    def step(self, step: int, values: dict[str, Any]) -> None:
        """The means since the last record, as `StepControl.log_values` has them."""
        if self._writer is not None and values:
            self._writer.append(StepRecord(step=step, time=time.monotonic() - self._began, **values))

    def evaluation(self, step: int, split: str, scores: Scores) -> None:
        self._remember(split, step, scores)
        if self._writer is not None:
            self._writer.append(EvalRecord(step=step, split=split, **asdict(scores)))

    def end(self, step: int, model: torch.nn.Module, weights: str) -> None:
        """Training has ended: write the result, and close the log."""
        if self._writer is None:
            return
        self._writer.append(EventRecord("end", step))
        self._writer.close()
        self._writer = None
        parameter = next(model.parameters())
        result = RunResult(
            steps=step,
            best=self._best,
            evaluations=self._scores,
            weights=weights,
            parameters=sum(one.numel() for one in model.parameters()),
            seconds=time.monotonic() - self._began,
            device=str(parameter.device),
            precision=str(parameter.dtype).removeprefix("torch."),
            graphs=False,
            threads=torch.get_num_threads(),
            processes=distributed.world_size(),
        )
        write_json(self.folder / RESULT, encode(result))

    def _remember(self, split: str, step: int, scores: Scores) -> None:
        self._scores[split] = Scores(**{name: getattr(scores, name) for name in Scores.__dataclass_fields__})
        if split == "val" and scores.auc is not None and (self._best is None or scores.auc > (self._best.auc or 0.0)):
            self._best = BestStep(step, scores.auc, "auc", scores.auc)


def make_run_log(folder: str | Path | None, rule: Any, seed: int, settings: dict[str, Any]) -> RunFolderLog | None:
    """A log in ``folder``, None without one."""
    if folder is None:
        return None
    if not isinstance(folder, str | Path) or Path(folder).is_file():
        raise InputError(f"run={folder!r}, expected a folder that is to be made")
    return RunFolderLog(folder, rule if isinstance(rule, str) else describe(rule), seed, settings)


def write_step(log: RunFolderLog | None, control: StepControl, step: int) -> dict[str, float]:
    """What the framework logs of ``control``; the folder gets it all."""
    values = control.log_values()
    if log is not None:
        log.step(step, values)
    return {name: values[name] for name in ("k", "k_used", "win_rate") if values.get(name) is not None}


def split_of_prefix(prefix: str) -> str:
    """``eval`` is "val", ``eval_train`` is "train", ``test`` is "test"."""
    return "val" if prefix == "eval" else prefix.removeprefix("eval_")

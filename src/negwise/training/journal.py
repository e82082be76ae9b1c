"""Where records go: ``run.jsonl``, the display and, on request, TensorBoard. Only the first process writes."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from negwise.records import LOG, EvalRecord, EventRecord, RunLogWriter, Scores, StepRecord, read_run
from negwise.training.progress import Display, Silent
from negwise.training.run_folder import resumable


class Journal:
    """Records of a run in ``out`` that starts, or resumes, at ``step``; ``keep`` is false on all ranks but one."""

    def __init__(self, out: Path, step: int, display: Display, tensorboard: bool = False, keep: bool = True) -> None:
        self._stack = ExitStack()
        self.display: Display = display if keep else Silent()
        self._log: RunLogWriter | None = None
        self._board: Any = None
        if not keep:
            return
        again = (out / LOG).exists()
        with resumable(out / LOG):
            self._log = self._stack.enter_context(RunLogWriter(out / LOG))
        self.event("resume" if again else "start", step)
        # A stop in the middle of things may leave the evaluation of this very step on record.
        self._known = {(record.step, record.split) for record in read_run(out).evals}
        if tensorboard:
            from torch.utils.tensorboard import SummaryWriter

            writer: Any = SummaryWriter  # untyped
            with resumable(out / "tensorboard"):
                self._board = writer(str(out / "tensorboard"), purge_step=step + 1)
            self._stack.callback(self._board.close)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.display)
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def step(self, record: StepRecord) -> None:
        self._write(record)
        self.display.step(record)
        self._plot("train", record.step, asdict(record))

    def evaluation(self, step: int, split: str, scores: Scores) -> None:
        record = EvalRecord(step=step, split=split, **asdict(scores))
        self.display.evaluation(record)
        if self._log is None or (step, split) in self._known:
            return
        self._write(record)
        self._plot(f"eval/{split}", step, {"auc": scores.auc, **scores.metrics})

    def event(self, event: str, step: int, detail: str | None = None) -> None:
        self._write(EventRecord(event, step, detail))

    def sync(self) -> None:
        """Wait until the log is on the disk: before a checkpoint says that what it tells of has happened."""
        if self._log is not None:
            with resumable(self._log.path):
                self._log.sync()
        if self._board is not None:
            self._board.flush()

    def _write(self, record: StepRecord | EvalRecord | EventRecord) -> None:
        if self._log is not None:
            with resumable(self._log.path):
                self._log.append(record)

    def _plot(self, family: str, step: int, values: dict[str, Any]) -> None:
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and name not in ("step", "time"):
                    self._board.add_scalar(f"{family}/{name}", value, step)

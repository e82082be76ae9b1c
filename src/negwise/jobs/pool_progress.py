"""What a person sees of many runs, on standard error: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from negwise.jobs.worker_pool import PlannedRun, PoolProgress

SECONDS_BETWEEN_LINES = 10.0


def pool_progress(runs: Sequence[PlannedRun], stream: TextIO | None = None) -> PoolBars | PoolLines:
    """Bars where ``stream`` (standard error) is a terminal, else lines."""
    stream = stream or sys.stderr
    return PoolBars(runs, stream) if stream.isatty() else PoolLines(runs, stream)


class PoolLines(PoolProgress):
    """A line when a run begins and ends, and one every ten seconds."""

    def __init__(self, runs: Sequence[PlannedRun], stream: TextIO) -> None:
        self.runs, self.stream = runs, stream
        self.done, self.at = 0, {run.folder: 0 for run in runs}
        self.last = time.monotonic()
        self.first: tuple[float, int] | None = None  # when the first step was reported, and how many there were then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def began(self, run: PlannedRun) -> None:
        self.say(f"{run.name}: begins")

    def step(self, run: PlannedRun, message: dict[str, Any]) -> None:
        self.at[run.folder] = message["step"]
        now = time.monotonic()
        if self.first is None:
            self.first = now, sum(self.at.values())
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self.say(f"{run.name}: step {message['step']}/{run.steps}  {_figures(message)}{self._left(now)}")

    def _left(self, now: float) -> str:
        """The time left, from the steps since the first news: starting up, and what was there before, tell nothing."""
        began, before = self.first or (now, 0)
        steps = sum(self.at.values())
        if steps == before or now == began:
            return ""
        left = (sum(run.steps for run in self.runs) - steps) * (now - began) / (steps - before)
        return f"  about {left:.0f} s left"

    def ended(self, run: PlannedRun, error: str | None) -> None:
        self.done, self.at[run.folder] = self.done + 1, run.steps
        self.say(f"{run.name}: {'done' if error is None else f'failed: {error}'}  ({self.done}/{len(self.runs)})")

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)


class PoolBars(PoolProgress):
    """One bar for all of it, with the time left, and one for each run at work."""

    def __init__(self, runs: Sequence[PlannedRun], stream: TextIO) -> None:
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(file=stream),
            refresh_per_second=5,
        )
        self.runs, self.done = runs, 0
        self.all = self.bars.add_task(self._title(), total=sum(run.steps for run in runs), note="")
        self.own: dict[Any, TaskID] = {}
        self.at = {run.folder: 0 for run in runs}

    def _title(self) -> str:
        return f"{self.done}/{len(self.runs)} runs"

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def began(self, run: PlannedRun) -> None:
        self.own[run.folder] = self.bars.add_task(run.name, total=run.steps, note="")

    def step(self, run: PlannedRun, message: dict[str, Any]) -> None:
        self.bars.update(self.own[run.folder], completed=message["step"], note=_figures(message))
        self._count(run, message["step"])

    def ended(self, run: PlannedRun, error: str | None) -> None:
        self.bars.remove_task(self.own.pop(run.folder))
        self.done += 1
        self._count(run, run.steps)
        self.bars.update(self.all, description=self._title())
        if error is not None:
            self.say(f"{run.name}: failed: {error}")

    def _count(self, run: PlannedRun, step: int) -> None:
        self.at[run.folder] = step
        self.bars.update(self.all, completed=sum(self.at.values()))

    def say(self, line: str) -> None:
        self.bars.console.print(line, highlight=False, markup=False)


def _figures(message: dict[str, Any]) -> str:
    auc = "" if message["auc"] is None else f"  val AUC {message['auc']:.3f}"
    return f"K {message['k']:.3g}  loss {message['loss']:.3f}{auc}"

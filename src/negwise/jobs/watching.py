"""What a person sees of many runs, on standard error: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from negwise.jobs.crew import Cell, Watch

SECONDS_BETWEEN_LINES = 10.0


def watch_for(cells: Sequence[Cell], stream: TextIO | None = None) -> Bars | Lines:
    """Bars where ``stream`` (standard error) is a terminal, else lines."""
    stream = stream or sys.stderr
    return Bars(cells, stream) if stream.isatty() else Lines(cells, stream)


class Lines(Watch):
    """A line when a run begins and ends, and one every ten seconds."""

    def __init__(self, cells: Sequence[Cell], stream: TextIO) -> None:
        self.cells, self.stream = cells, stream
        self.done, self.at = 0, {cell.folder: 0 for cell in cells}
        self.last = time.monotonic()
        self.first: tuple[float, int] | None = None  # when the first step was told of, and how many there were then

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def began(self, cell: Cell) -> None:
        self.say(f"{cell.name}: begins")

    def news(self, cell: Cell, record: dict[str, Any]) -> None:
        self.at[cell.folder] = record["step"]
        now = time.monotonic()
        if self.first is None:
            self.first = now, sum(self.at.values())
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self.say(f"{cell.name}: step {record['step']}/{cell.steps}  {_figures(record)}{self._left(now)}")

    def _left(self, now: float) -> str:
        """The time left, from the steps since the first news: starting up, and what was there before, tell nothing."""
        began, before = self.first or (now, 0)
        steps = sum(self.at.values())
        if steps == before or now == began:
            return ""
        left = (sum(cell.steps for cell in self.cells) - steps) * (now - began) / (steps - before)
        return f"  about {left:.0f} s left"

    def ended(self, cell: Cell, error: str | None) -> None:
        self.done, self.at[cell.folder] = self.done + 1, cell.steps
        self.say(f"{cell.name}: {'done' if error is None else f'failed: {error}'}  ({self.done}/{len(self.cells)})")

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)


class Bars(Watch):
    """One bar for all of it, with the time left, and one for each run at work."""

    def __init__(self, cells: Sequence[Cell], stream: TextIO) -> None:
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
        self.cells, self.done = cells, 0
        self.all = self.bars.add_task(self._title(), total=sum(cell.steps for cell in cells), note="")
        self.own: dict[Any, TaskID] = {}
        self.at = {cell.folder: 0 for cell in cells}

    def _title(self) -> str:
        return f"{self.done}/{len(self.cells)} runs"

    def __enter__(self) -> Self:
        self.bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bars.stop()

    def began(self, cell: Cell) -> None:
        self.own[cell.folder] = self.bars.add_task(cell.name, total=cell.steps, note="")

    def news(self, cell: Cell, record: dict[str, Any]) -> None:
        self.bars.update(self.own[cell.folder], completed=record["step"], note=_figures(record))
        self._count(cell, record["step"])

    def ended(self, cell: Cell, error: str | None) -> None:
        self.bars.remove_task(self.own.pop(cell.folder))
        self.done += 1
        self._count(cell, cell.steps)
        self.bars.update(self.all, description=self._title())
        if error is not None:
            self.say(f"{cell.name}: failed: {error}")

    def _count(self, cell: Cell, step: int) -> None:
        self.at[cell.folder] = step
        self.bars.update(self.all, completed=sum(self.at.values()))

    def say(self, line: str) -> None:
        self.bars.console.print(line, highlight=False, markup=False)


def _figures(record: dict[str, Any]) -> str:
    auc = "" if record["auc"] is None else f"  val AUC {record['auc']:.3f}"
    return f"K {record['k']:.3g}  loss {record['loss']:.3f}{auc}"

"""Where the records of a run go: ``run.jsonl``, the display, and TensorBoard on request."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from html import escape
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.table import Column

from negwise.records import LOG, EvalRecord, EventRecord, RunLogWriter, Scores, StepRecord, read_run
from negwise.training.run_folder import resumable

SECONDS_BETWEEN_LINES, SECONDS_BETWEEN_DRAWINGS = 10.0, 0.5


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


class Display(Protocol):
    """Receives each record as it is logged."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: Any) -> None: ...

    def step(self, record: StepRecord) -> None: ...

    def evaluation(self, record: EvalRecord) -> None: ...

    def say(self, line: str) -> None: ...


def display(total: int, start: int, stream: TextIO | None = None, metric: str = "auc") -> Lines | Bar:
    """A bar where ``stream`` (standard error) is a terminal or a notebook's, else lines; ``metric`` is what counts."""
    if stream is None and in_notebook():
        return NotebookBar(total, start, sys.stdout, metric)
    stream = stream or sys.stderr
    return (Bar if stream.isatty() else Lines)(total, start, stream, metric)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook. IPython is not imported to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def step(self, record: StepRecord) -> None: ...

    def evaluation(self, record: EvalRecord) -> None: ...

    def say(self, line: str) -> None: ...


class Lines:
    """A line for each evaluation, and one every ten seconds."""

    def __init__(self, total: int, start: int, stream: TextIO, metric: str = "auc") -> None:
        self.total, self.start, self.stream, self.metric = total, start, stream, metric
        self.began = self.last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def expect(self, total: int) -> None:
        """Count on so many steps."""
        self.total = total

    def step(self, record: StepRecord) -> None:
        now = time.monotonic()
        if now - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = now
        rate = (record.step - self.start) / (now - self.began)
        left = (self.total - record.step) / rate
        self.say(
            f"step {record.step}/{self.total}  {'  '.join(_figures(record))}  {rate:.3g} steps/s  {_clock(left)} left"
        )

    def evaluation(self, record: EvalRecord) -> None:
        self.say(f"step {record.step}/{self.total}  {record.split} {scores_in_words(record, self.metric)}")

    def say(self, line: str) -> None:
        print(line, file=self.stream, flush=True)


class NotebookBar(Lines):
    """The same as one element of a notebook, which is redrawn."""

    def __init__(self, total: int, start: int, stream: TextIO, metric: str = "auc") -> None:
        super().__init__(total, start, stream, metric)
        self.figures = self.scores = ""
        self.done = start
        self.element: Any = None

    def __enter__(self) -> Self:
        self._draw()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()

    def step(self, record: StepRecord) -> None:
        self.done, self.figures = record.step, "  ".join(_figures(record))
        if time.monotonic() - self.last >= SECONDS_BETWEEN_DRAWINGS:
            self._draw()

    def evaluation(self, record: EvalRecord) -> None:
        self.done, self.scores = int(record.step), f"{record.split} {scores_in_words(record, self.metric)}"
        self._draw()

    def _draw(self) -> None:
        from IPython.display import HTML, display

        self.last = time.monotonic()
        rate = (self.done - self.start) / max(self.last - self.began, 1e-9)
        left = f"{_clock((self.total - self.done) / rate)} left" if rate and self.done < self.total else ""
        text = "  ".join(filter(None, (f"{self.done}/{self.total}", self.scores, self.figures, left)))
        bar = HTML(f'<progress value="{self.done}" max="{self.total}"></progress> {escape(text)}')
        if self.element is None:
            self.element = display(bar, display_id=True)
        else:
            self.element.update(bar)


class Bar:
    """Step, K, loss, the metric, rate and time left, in place."""

    def __init__(self, total: int, start: int, stream: TextIO, metric: str = "auc") -> None:
        self.total, self.start, self.began, self.metric = total, start, time.monotonic(), metric
        self.figures: list[str] = []
        self.seen: dict[str, str] = {}
        # In a narrow terminal the bar gives way, and the figures stay.
        columns = (
            SpinnerColumn(),  # turns while a long evaluation stands still
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            BarColumn(bar_width=20),
            TextColumn("{task.description}"),
            TimeRemainingColumn(table_column=Column(no_wrap=True)),
        )
        self.bar = Progress(*columns, console=Console(file=stream), refresh_per_second=5)
        self.task = self.bar.add_task("", total=total, completed=start)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()

    def expect(self, total: int) -> None:
        """Count on so many steps."""
        self.total = total
        self.bar.update(self.task, total=total)

    def step(self, record: StepRecord) -> None:
        rate = (record.step - self.start) / max(time.monotonic() - self.began, 1e-9)
        self.figures = [*_figures(record), f"{rate:.3g} steps/s"]
        self._update(record)

    def evaluation(self, record: EvalRecord) -> None:
        value = record.value(self.metric)
        self.seen[record.split] = "-" if value is None else f"{value:.3f}"
        self._update(record)

    def _update(self, record: StepRecord | EvalRecord) -> None:
        values = " ".join(f"{split} {value}" for split, value in self.seen.items())
        name = "AUC" if self.metric == "auc" else self.metric
        parts = [*([f"{name} {values}"] if values else []), *self.figures]
        room = self.bar.console.width - len(f"{record.step:.0f}/{self.total}") - len("  0:00:00")
        while len(parts) > 2 and len("  ".join(parts)) > room:  # the last ones matter least
            parts.pop()
        self.bar.update(self.task, completed=record.step, description="  ".join(parts))

    def say(self, line: str) -> None:
        self.bar.console.print(line, highlight=False)


def _figures(record: StepRecord) -> list[str]:
    """K and loss; of online K "K 752 (asked 2044, ndcg@10)", "hits 0.213", "loss 5.1234"."""
    hits = [] if record.k_asked is None or record.hit_rate is None else [f"hits {record.hit_rate:.3f}"]
    return [f"K {_short(record.k)}{_bound(record)}", *hits, f"loss {record.loss:.4f}"]


def _bound(record: StepRecord) -> str:
    """The K that the rule asked for, and what it met, where K is at a bound."""
    name, _, _ = (record.k_reason or "").partition(",")
    if record.k_asked is None or not name.startswith(("bounded by ", "min_k")):
        return ""
    return f" (asked {_short(record.k_asked)}, {name.removeprefix('bounded by ').removeprefix('K for ')})"


def _short(k: float | None) -> str:
    return "-" if k is None else f"{k:.0f}" if k >= 100 else f"{k:.3g}"


def scores_in_words(scores: Scores, metric: str) -> str:
    """``metric`` and AUC, as "hit@5 0.6064  AUC 0.9568±0.0014"."""
    value = scores.value(metric)
    first = "" if metric == "auc" else f"{metric} {'-' if value is None else f'{value:.4f}'}  "
    error = "" if scores.auc_se is None else f"±{scores.auc_se:.4f}"
    return f"{first}AUC {'-' if scores.auc is None else f'{scores.auc:.4f}{error}'}"


def result_in_words(scores: Scores, metric: str) -> str:
    """The same with the top-n metrics, for the end of a run."""
    more = [name for name in ("ndcg@10", "hit@10") if name != metric and scores.value(name) is not None]
    return "  ".join([scores_in_words(scores, metric), *(f"{name} {scores.value(name):.4f}" for name in more)])


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"

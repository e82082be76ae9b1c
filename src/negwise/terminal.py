"""Results on a terminal, in colour and columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from negwise.records import Difference, lines_of_use
from negwise.theory.estimate import Estimate

if TYPE_CHECKING:
    from negwise.jobs import JobResult

WIDE = 240
_COLOURS = {"ok": "green", "capped": "yellow", "vacuous": "yellow", "incomplete": "yellow", "inconsistent": "red"}


def show_estimate(found: Estimate, console: Console | None = None) -> None:
    """The headline, the numbers as a table, the reasons below."""
    console = console or Console()
    console.print(Text(found.headline(), style=f"bold {_COLOURS[found.verdict]}"))
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in found.facts():
        table.add_row(name, Text(value, style=_COLOURS[found.verdict] if name == "verdict" else ""))
    console.print(table)
    for reason in found.reasons:
        console.print(Text(f"- {reason}"))


def show_results(result: JobResult, console: Console | None = None) -> None:
    """A row for each arm, what it gains over K = 1, where the model is and how to load it."""
    from negwise.jobs.results import mean_over_seeds
    from negwise.report.formatting import metric_name

    console = console or Console()
    if not console.is_terminal:  # a file has no width, and figures must not be cut
        console = Console(file=console.file, width=WIDE)
    results, pilot_seconds = result.record, 0.0
    if results.pilot is not None:
        pilot_seconds = results.pilot.seconds or 0.0
    table = Table(box=None, padding=(0, 2, 0, 0))
    scores = [f"test {metric_name(metric)}" for metric in results.metrics]
    for name in ("K", *scores, "seconds", "with pilot", "learning rate", "runs"):
        table.add_column(name, justify="left" if name == "K" else "right", overflow="fold")
    for arm in results.arms:
        failed = sum(seed.state == "failed" for seed in arm.seeds)
        cells = [_mean(*mean_over_seeds(arm, metric)[:2]) for metric in results.metrics]
        times = [seed.seconds for seed in arm.done if seed.seconds is not None]
        seconds = sum(times) / len(times) if times else None
        pilot = pilot_seconds if arm.uses_pilot else 0.0
        table.add_row(
            Text(arm.name + (" *" if arm.name == results.chosen else ""), style="bold"),
            *cells,
            "-" if seconds is None else f"{seconds:.1f}",
            "-" if seconds is None else f"{seconds + pilot:.1f}",
            "-" if arm.learning_rate is None else f"{arm.learning_rate:g}",
            f"{len(arm.done)} done" + (f", {failed} failed" if failed else ""),
        )
    console.print(table)
    for gap in results.differences:
        if gap.mean is not None:
            console.print(Text(_gap(gap, metric_name(gap.metric))), soft_wrap=True)
    for caveat in results.caveats:
        console.print(Text(f"- {caveat}"), soft_wrap=True)
    if results.model is not None:
        model = result.folder / results.model
        console.print(Text(f"* best on validation; model: {model}"), soft_wrap=True)
        console.print(Text(lines_of_use(model, str(result.folder))), soft_wrap=True)


def _mean(value: float | None, error: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}")


def _gap(gap: Difference, metric: str) -> str:
    reach = "" if gap.low is None else f", 95% interval {gap.low:+.4f} .. {gap.high:+.4f}"
    seeds = "1 seed" if gap.seeds == 1 else f"{gap.seeds} seeds"
    return f"K {gap.arm} against K {gap.against}: {gap.mean:+.4f} {metric} ({seeds}{reach})"

"""Results on a terminal, in colour and columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from negwise.records import JOB, Difference, lines_of_use
from negwise.theory.estimate import Estimate

if TYPE_CHECKING:
    from negwise.jobs import JobResult
    from negwise.report.report_data import ReportData
    from negwise.report.stat_tile import Stat

WIDE, MEDIUM, NARROW = 240, 100, 72
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
    """The answer of the main job; for a sweep and the paper's way a row for each arm, and its gain over K = 1."""
    from negwise.report.from_job import job_report_data

    console = console or Console()
    if not console.is_terminal:  # a file has no width, and figures must not be cut
        console = Console(file=console.file, width=WIDE)
    report = job_report_data(result.folder) if (result.folder / JOB).is_file() else None
    if report is not None and report.kind == "run" and not report.paper:
        _show_answer(report, console)
    else:
        _show_arms(result, console)


def _show_answer(report: ReportData, console: Console) -> None:
    """What would mislead comes first, then the numbers, which K to take, the race, and how to load the model."""
    from negwise.report.answer import make_answer
    from negwise.report.tables import DECISION_COLUMNS, DECISION_NOTE, decision_rows

    answer = make_answer(report)
    console.print(Text(answer.headline, style="bold yellow" if answer.notices else "bold green"))
    for notice in answer.notices:
        console.print(Text(f"! {notice}", style="yellow"))
    if answer.lead:
        console.print(Text(answer.lead))
    _print_facts(answer.stats, console)
    if answer.scores is not None and len(answer.scores.rows) > 1:
        console.print()
        _, *names = answer.scores.columns
        models, *cells = zip(*answer.scores.rows, strict=True)
        _print_table(("", *models), [(name, *row) for name, row in zip(names, cells, strict=True)], console)
        console.print(Text(answer.scores.note, style="dim"))
    if answer.advice is not None:
        console.print()
        console.print(Text(answer.advice, style="bold"))
    if answer.shares is not None:
        _print_table(answer.shares.columns, answer.shares.rows, console)
        console.print(Text(answer.shares.note, style="dim"))
    if answer.forecast is not None:
        console.print(Text(answer.forecast, style="dim"))
    if report.decisions:
        console.print()
        if console.width < MEDIUM:
            _print_decisions(decision_rows(report), console)
        else:
            _print_table(DECISION_COLUMNS, decision_rows(report), console)
        console.print(Text(DECISION_NOTE, style="dim"))
    for caveat in report.caveats:
        console.print(Text(f"- {caveat}", style="dim"))
    if answer.load is not None:
        console.print()
        console.print(Text("To use the model:", style="dim"))
        console.print(Text(answer.load), soft_wrap=True)


def _print_facts(stats: Sequence[Stat], console: Console) -> None:
    """A line for each number; on a narrow terminal its note goes below."""
    narrow = console.width < NARROW
    facts = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    facts.add_column(style="dim")
    facts.add_column()
    if not narrow:
        facts.add_column()
    for stat in stats:
        value = Text(f"{stat.value} {stat.error}".strip(), style="bold")
        if narrow:
            facts.add_row(stat.label, Text("\n").join([value, Text(stat.note)]) if stat.note else value)
        else:
            facts.add_row(stat.label, value, stat.note)
    console.print(facts)


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    """The first column to the left, numbers to the right, words folded between words."""
    gap = 2 if console.width >= MEDIUM else 1
    table = Table(box=None, padding=(0, gap, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        words = any(len(row[number].split()) > 4 for row in rows)
        table.add_column(name, justify="left" if number == 0 or words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell or "-") for cell in row))
    console.print(table)


def _print_decisions(rows: Sequence[tuple[str, str, str, str, str, str]], console: Console) -> None:
    """The decisions of a race where a table has no room: a line for each candidate."""
    for step, metric, queries, kept, dropped, why in rows:
        among = f", {queries} validation queries" if queries else ""
        console.print(Text(f"Race at step {step}, {metric}{among}: {why}"))
        for how, names in (("kept", kept), ("dropped", dropped)):
            for name in filter(None, names.split("\n")):
                console.print(Text(f"  {how} {name}"))


def _show_arms(result: JobResult, console: Console) -> None:
    """A row for each arm, what it gains over K = 1, where the model is and how to load it."""
    from negwise.jobs.results import mean_over_seeds
    from negwise.report.formatting import metric_name

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

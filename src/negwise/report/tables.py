"""The tables of the page: results of the arms, decisions of a race, what is in the data, and settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from negwise.datasets import DataReport
from negwise.records import Decision, EvalRecord, RunLog
from negwise.report.formatting import format_count, format_seconds, format_value, metric_name
from negwise.report.report_data import ArmRuns, ReportData

_PLUS_MINUS = "\N{PLUS-MINUS SIGN}"
NamedValues = list[tuple[str, str]]
PROBLEMS_SHOWN = 10
DECISION_COLUMNS = ("step", "metric", "validation queries", "kept", "dropped", "why")
DECISION_NOTE = (
    f"{_PLUS_MINUS} is the standard error over queries. Candidates are compared by differences paired by query."
)
SAME_VALUE = 1e-6
"""Two values of a metric closer than this are one and the same evaluation."""


@dataclass(frozen=True)
class Cell:
    """A number and its standard error, as text; empty if there is none."""

    value: str
    se: str = ""


@dataclass(frozen=True)
class ArmRow:
    """One arm. ``problems`` has a sentence for each seed that is not done; ``tuning`` has rates, AUCs and states."""

    name: str
    role: str
    chosen: bool
    k: str
    scores: tuple[Cell, ...]
    seconds: str
    pilot: str
    learning_rate: str
    seeds: str
    queries: str
    problems: tuple[str, ...]
    tuning: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class ResultsTable:
    """Test scores of all arms."""

    metrics: tuple[str, ...]
    rows: tuple[ArmRow, ...]

    @property
    def is_one_run(self) -> bool:
        """Whether there is one run, which is done: then there is nothing to compare."""
        return len(self.rows) == 1 and self.rows[0].seeds == "1 of 1"

    @property
    def has_tuning(self) -> bool:
        return any(row.tuning for row in self.rows)

    @property
    def has_pilot(self) -> bool:
        return any(row.pilot for row in self.rows)


def results_table(report: ReportData) -> ResultsTable:
    """Test scores of all arms, as means over the seeds that are done."""
    rows = tuple(_arm_row(arm, report) for arm in report.arms)
    return ResultsTable(tuple(metric_name(name) for name in report.metrics), rows)


def decision_rows(report: ReportData) -> list[tuple[str, str, str, str, str, str]]:
    """The decisions of a race as `DECISION_COLUMNS` has them, without those that repeat the one before at its step."""
    told = [
        decision
        for before, decision in zip((None, *report.decisions), report.decisions, strict=False)
        if before is None or before.step != decision.step or before.kept != decision.kept or decision.dropped
    ]
    return [_decision_row(decision, report.raced) for decision in told]


def _decision_row(decision: Decision, logs: Mapping[str, RunLog]) -> tuple[str, str, str, str, str, str]:
    """A line for each candidate, with its validation score and, where the logs have it, the error over queries."""
    found = {name: _evaluation(logs.get(name), decision.metric, value) for name, value in decision.values.items()}
    queries = {record.queries for record in found.values() if record is not None and record.queries}

    def scored(name: str) -> str:
        if name not in decision.values:
            return name
        record = found[name]
        error = None if record is None else record.error(decision.metric)
        return f"{name} ({decision.values[name]:.4f}{'' if error is None else f' {_PLUS_MINUS} {error:.4f}'})"

    return (
        format_count(decision.step),
        metric_name(decision.metric),
        _counts_text(queries),
        "\n".join(map(scored, decision.kept)),
        "\n".join(map(scored, decision.dropped)),
        decision.reason,
    )


def _evaluation(log: RunLog | None, metric: str, value: float) -> EvalRecord | None:
    """The evaluation that gave ``value``: the candidates of a race differ in the steps they had until then."""
    records = () if log is None else log.of_split("val")
    return next((one for one in records if abs((one.value(metric) or 0.0) - value) < SAME_VALUE), None)


def _counts_text(counts: Collection[int]) -> str:
    """{500} -> 500; {500, 480} -> 480 to 500; nothing -> nothing."""
    if not counts:
        return ""
    least, most = format_count(min(counts)), format_count(max(counts))
    return least if least == most else f"{least} to {most}"


def data_rows(data: DataReport) -> NamedValues:
    """The rows of a data report: counts, the bounds of K, problems."""
    found = [("path", data.path), ("kind", data.kind)]
    found += [(name.replace("_", " "), format_value(value)) for name, value in data.counts.items()]
    if data.density is not None:
        found.append(("density", format_value(data.density)))
    balance = "positives only" if data.label_balance is None else f"{format_value(data.label_balance)} are positive"
    found.append(("label balance", balance))
    has = data.negatives
    spread = f"{format_value(has.least)} to {format_value(has.most)}, median {format_value(has.median)}"
    found += [("negatives of a positive", f"{spread} ({has.source})"), ("ceiling for K", has.ceiling())]
    found += [(f"true {name}", format_value(value)) for name, value in (data.truth or {}).items()]
    found += [("content hash", data.digest), ("bad rows skipped", format_count(len(data.problems)))]
    return [*found, *(("problem", str(problem)) for problem in data.problems[:PROBLEMS_SHOWN])]


def settings_rows(settings: Mapping[str, Any], inside: str = "") -> NamedValues:
    """Settings by name. A nested one has the name of its parent before its own; None, the default, is left out."""
    found: NamedValues = []
    for key, value in settings.items():
        name = f"{inside}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            found += settings_rows(value, f"{name}: ")
        elif value is not None:
            found.append((name, format_value(value)))
    return found


def _arm_row(arm: ArmRuns, report: ReportData) -> ArmRow:
    seconds = arm.mean_seconds().value
    return ArmRow(
        name=arm.name,
        role=_role(arm),
        chosen=arm.name == report.chosen and len(report.arms) > 1,
        k="" if arm.k is None else format_count(arm.k),
        scores=tuple(_score_cell(arm, name) for name in report.metrics),
        seconds="" if seconds is None else format_seconds(seconds),
        pilot=format_seconds(arm.pilot_seconds) if arm.pilot_seconds else "",
        learning_rate="" if arm.learning_rate is None else f"{arm.learning_rate:g}",
        seeds=f"{len(arm.done)} of {len(arm.seeds)}",
        queries=_counts_text({run.test.queries for run in arm.done if run.test is not None and run.test.queries}),
        problems=tuple(_problems(arm)),
        tuning=tuple(
            (
                f"{tried.learning_rate:g}",
                "" if tried.val_auc is None else f"{tried.val_auc:.4f}",
                tried.state if tried.error is None else f"{tried.state}: {tried.error}",
            )
            for tried in arm.tuning
        ),
    )


def _role(arm: ArmRuns) -> str:
    """The role of the arm, if its name does not say it. A fixed schedule is K* itself."""
    if arm.role in (None, "cell", "extra"):
        return ""
    return "fixed K*" if arm.role == "schedule" and arm.fixed and arm.uses_pilot else str(arm.role)


def _score_cell(arm: ArmRuns, metric: str) -> Cell:
    """The error is over seeds, or with one seed over queries."""
    mean, error = arm.test(metric), arm.error(metric)
    if mean.value is None:
        return Cell("")
    return Cell(f"{mean.value:.4f}", "" if error is None else f"{_PLUS_MINUS} {error:.4f}")


def _problems(arm: ArmRuns) -> list[str]:
    words = {"failed": "failed", "waiting": "not finished"}
    return [
        f"seed {run.seed} {words[run.state]}" + (f": {run.error}" if run.error else "")
        for run in arm.seeds
        if run.state != "done"
    ]

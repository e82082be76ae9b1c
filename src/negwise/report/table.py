"""The table of results: arms against metrics, with what each cost and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.report.subject import Arm, Mean, Subject
from negwise.report.words import count, metric_name, seconds


@dataclass(frozen=True)
class Cell:
    """A number with its standard error over seeds, as text; empty where there is none."""

    value: str
    se: str = ""


@dataclass(frozen=True)
class Line:
    """One arm. ``troubles`` says which seeds failed or wait, and why."""

    name: str
    role: str
    chosen: bool
    k: str
    scores: tuple[Cell, ...]
    seconds: Cell
    pilot: str
    learning_rate: str
    seeds: str
    troubles: tuple[str, ...]
    tuning: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Table:
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]

    @property
    def tuned(self) -> bool:
        return any(line.tuning for line in self.lines)

    @property
    def charged(self) -> bool:
        return any(line.pilot for line in self.lines)


def results(subject: Subject) -> Table:
    """Test scores, a mean over the seeds that are done."""
    lines = tuple(_line(arm, subject) for arm in subject.arms)
    return Table(tuple(metric_name(name) for name in subject.metrics), lines)


def _line(arm: Arm, subject: Subject) -> Line:
    return Line(
        name=arm.name,
        role=_role(arm),
        chosen=arm.name == subject.chosen and len(subject.arms) > 1,
        k="" if arm.k is None else count(arm.k),
        scores=tuple(score(arm, name) for name in subject.metrics),
        seconds=_seconds(arm.mean_seconds()),
        pilot=seconds(arm.pilot_seconds) if arm.pilot_seconds else "",
        learning_rate="" if arm.learning_rate is None else f"{arm.learning_rate:g}",
        seeds=f"{len(arm.done)} of {len(arm.seeds)}",
        troubles=tuple(_troubles(arm)),
        tuning=tuple(
            (
                f"{one.learning_rate:g}",
                "" if one.val_auc is None else f"{one.val_auc:.4f}",
                one.state if one.error is None else f"{one.state}: {one.error}",
            )
            for one in arm.tuning
        ),
    )


def _role(arm: Arm) -> str:
    """What the arm is there for, where its name does not say it: a fixed schedule is K* itself."""
    if arm.role in (None, "cell", "extra"):
        return ""
    return "fixed K*" if arm.role == "schedule" and arm.fixed and arm.uses_pilot else str(arm.role)


def score(arm: Arm, metric: str) -> Cell:
    mean = arm.test(metric)
    if mean.value is None:
        return Cell("")
    return Cell(f"{mean.value:.4f}", "" if mean.se is None else f"\N{PLUS-MINUS SIGN} {mean.se:.4f}")


def _seconds(mean: Mean) -> Cell:
    return Cell("" if mean.value is None else seconds(mean.value))


def _troubles(arm: Arm) -> list[str]:
    said = {"failed": "failed", "waiting": "not trained to the end"}
    return [
        f"seed {trial.seed} {said[trial.state]}" + (f": {trial.error}" if trial.error else "")
        for trial in arm.seeds
        if trial.state != "done"
    ]

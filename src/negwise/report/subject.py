"""What a page is about: arms, their trials, the estimate. A job, a run, a log and a comparison all become this."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from negwise.records import Run
from negwise.theory.estimate import Estimate


@dataclass(frozen=True)
class Scores:
    """One evaluation: AUC with its standard error over queries, and the other metrics by name."""

    auc: float | None
    auc_se: float | None
    queries: float | None
    metrics: Mapping[str, float | None]

    def value(self, metric: str) -> float | None:
        return self.auc if metric == "auc" else self.metrics.get(metric)


@dataclass(frozen=True)
class Recommended:
    """What the top ``n`` of a model hold. ``popularity``: mean number of training positives of a recommended item."""

    n: float | None
    queries: float | None
    coverage: float | None
    popularity: float | None
    positives_popularity: float | None
    catalogue: float | None


@dataclass(frozen=True)
class Trial:
    """One run. ``state`` is "done", "failed" or "waiting"; ``log`` is None where there is none yet."""

    seed: int
    folder: Path
    state: str
    error: str | None = None
    steps: float | None = None
    seconds: float | None = None
    best_step: float | None = None
    val: Scores | None = None
    test: Scores | None = None
    recommended: Recommended | None = None
    log: Run | None = None


@dataclass(frozen=True)
class Tuned:
    """A learning rate that was tried."""

    learning_rate: float | None
    state: str
    val_auc: float | None
    seconds: float | None
    error: str | None


@dataclass(frozen=True)
class Arm:
    """One way to train, over seeds.

    ``pilot_seconds`` is what the pilot cost, where this arm rests on it; ``group`` the folder that the arm comes from,
    where several are compared.
    """

    name: str
    rule: str | None
    k: float | None
    role: str | None
    trials: tuple[Trial, ...]
    uses_pilot: bool = False
    pilot_seconds: float = 0.0
    learning_rate: float | None = None
    tuning: tuple[Tuned, ...] = ()
    group: str = ""

    @property
    def done(self) -> tuple[Trial, ...]:
        return tuple(trial for trial in self.trials if trial.state == "done")

    @property
    def fixed(self) -> bool:
        """Whether K is one number throughout."""
        try:
            float(self.rule or "")
        except ValueError:
            return False
        return True

    def test(self, metric: str) -> Mean:
        """A test score over the trials that are done and have it."""
        return Mean.over(None if trial.test is None else trial.test.value(metric) for trial in self.done)

    def val(self, metric: str) -> Mean:
        return Mean.over(None if trial.val is None else trial.val.value(metric) for trial in self.done)

    def seconds(self) -> Mean:
        return Mean.over(trial.seconds for trial in self.done)


@dataclass(frozen=True)
class Mean:
    """A mean over ``n`` seeds and its standard error; None where there are too few."""

    value: float | None
    se: float | None
    n: int

    @classmethod
    def over(cls, values: Iterable[float | None]) -> Mean:
        known = [value for value in values if value is not None]
        se = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
        return cls(statistics.fmean(known) if known else None, se, len(known))


@dataclass(frozen=True)
class PilotRun:
    """The run with K = 1 that the estimate rests on."""

    seconds: float | None
    steps: float | None
    converged: bool | None
    why: str | None
    log: Run | None


@dataclass(frozen=True)
class Difference:
    """An arm against another in one metric, paired over seeds."""

    arm: str
    against: str
    metric: str
    mean: float | None
    se: float | None
    low: float | None
    high: float | None
    seeds: float | None


@dataclass(frozen=True)
class Subject:
    """``kind``: run, sweep (jobs), train (a run), log (another framework's) or comparison.

    ``missing`` says, a sentence each, what is not there yet. ``model`` is the folder that the model can be loaded from.
    ``facts`` are tables of settings by title, each a mapping of names to values as they stand in the records.
    """

    path: Path
    kind: str
    arms: tuple[Arm, ...]
    metrics: tuple[str, ...] = ("auc",)
    estimates: tuple[tuple[str, Estimate], ...] = ()
    pilot: PilotRun | None = None
    chosen: str | None = None
    model: Path | None = None
    differences: tuple[Difference, ...] = ()
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    data: Mapping[str, Any] | None = None
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def estimate(self) -> Estimate | None:
        """The estimate, where there is exactly one."""
        return self.estimates[0][1] if len(self.estimates) == 1 else None

    @property
    def chosen_arm(self) -> Arm | None:
        return next((arm for arm in self.arms if arm.name == self.chosen), None)

    @property
    def top_metric(self) -> str | None:
        """The top-n metric that stands beside AUC."""
        return self.metrics[1] if len(self.metrics) > 1 else None

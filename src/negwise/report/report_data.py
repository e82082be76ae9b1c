"""The data behind a page: arms, their seeds, the estimate. The same type serves jobs, runs, logs and comparisons."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from negwise.datasets import DataReport
from negwise.records import (
    ArmResult,
    Baseline,
    CorpusScores,
    Decision,
    Difference,
    GainShare,
    PilotResult,
    RunLog,
    SeedResult,
)
from negwise.theory.estimate import Estimate


@dataclass(frozen=True)
class SeedRun(SeedResult):
    """One seed of an arm with its log; None if it has none yet."""

    log: RunLog | None = None


@dataclass(frozen=True)
class ArmRuns(ArmResult):
    """One way to train, over seeds with their logs. ``rule`` is empty if it is not known.

    ``pilot_seconds`` is the cost of the pilot if this arm uses it, else 0. ``group`` is the folder of the arm in a
    comparison, else empty.
    """

    seeds: tuple[SeedRun, ...]
    pilot_seconds: float = 0.0
    group: str = ""

    @property
    def done(self) -> tuple[SeedRun, ...]:
        return tuple(seed for seed in self.seeds if seed.state == "done")

    @property
    def fixed(self) -> bool:
        """Whether K is the same at every step."""
        return _is_number(self.rule)

    @property
    def label(self) -> str:
        """The name, with "K = " before a bare number."""
        return f"K = {self.name}" if _is_number(self.name) else self.name

    def test(self, metric: str) -> Mean:
        """The mean test score over the seeds that are done and have it."""
        return Mean.over(None if seed.test is None else seed.test.value(metric) for seed in self.done)

    def error(self, metric: str) -> float | None:
        """The standard error of the test score: over seeds, or with one seed over queries; None where not known."""
        mean = self.test(metric)
        tests = [run.test for run in self.done if run.test is not None and run.test.value(metric) is not None]
        return tests[0].error(metric) if len(tests) == 1 else mean.se

    def val(self, metric: str) -> Mean:
        return Mean.over(None if seed.val is None else seed.val.value(metric) for seed in self.done)

    def mean_seconds(self) -> Mean:
        return Mean.over(seed.seconds for seed in self.done)


@dataclass(frozen=True)
class Mean:
    """A mean over ``n`` seeds and its standard error; None if there are too few seeds."""

    value: float | None
    se: float | None
    n: int

    @classmethod
    def over(cls, values: Iterable[float | None]) -> Mean:
        known = [value for value in values if value is not None]
        se = statistics.stdev(known) / math.sqrt(len(known)) if len(known) > 1 else None
        return cls(statistics.fmean(known) if known else None, se, len(known))


@dataclass(frozen=True)
class ReportData:
    """``kind``: run, sweep (jobs), train (a run), log (another framework's) or comparison.

    ``missing`` has a sentence for each thing that is not there yet. ``model`` is the folder to load the model from.
    ``digest`` is the content hash of the data; None if it is not known. ``settings`` has tables by title, each a
    mapping of names to values of the records. ``paper`` is true for a job with a pilot and an estimate. ``seconds`` is
    the wall time of the whole job and ``seconds_by_use`` what they went into. ``epoch`` is the number of steps in an
    epoch, 0 if it is not known. ``raced`` has the logs of the candidates of a race by name.
    """

    path: Path
    kind: str
    arms: tuple[ArmRuns, ...]
    metrics: tuple[str, ...] = ("auc",)
    estimates: tuple[tuple[str, Estimate], ...] = ()
    pilot: PilotResult | None = None
    chosen: str | None = None
    model: Path | None = None
    differences: tuple[Difference, ...] = ()
    decisions: tuple[Decision, ...] = ()
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    data: DataReport | None = None
    digest: str | None = None
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: bool = True
    baselines: tuple[Baseline, ...] = ()
    corpus: CorpusScores | None = None
    candidates: float | None = None
    shares: tuple[GainShare, ...] = ()
    seconds: float | None = None
    seconds_by_use: Mapping[str, float] = field(default_factory=dict)
    epoch: int = 0
    raced: Mapping[str, RunLog] = field(default_factory=dict)

    @property
    def estimate(self) -> Estimate | None:
        """The estimate, if there is exactly one."""
        return self.estimates[0][1] if len(self.estimates) == 1 else None

    @property
    def chosen_arm(self) -> ArmRuns | None:
        return next((arm for arm in self.arms if arm.name == self.chosen), None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

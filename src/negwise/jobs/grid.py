"""Arms times learning rates times seeds, each a run in a folder.

The learning rate of an arm is chosen on the first seed or the first few, by mean validation AUC, from the same values
for every arm. The runs that won are the arm's first seeds; nothing is trained twice. A rate that cannot be trained (its
loss is no number) is out. A run whose process died, or whose disk was full, leaves the choice open until the same
command tries it again. Folders: ``tuning/<arm>/lr-<rate>/``, ``arms/<arm>/seed-<n>/``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from negwise.jobs.arms import Arm
from negwise.jobs.worker_pool import PlannedRun, PoolProgress, failure_of, train_all
from negwise.records import RESULT, TunedRate, read_record, read_result, write_record
from negwise.requests import TrainRequest

CHOICE = "choice.json"
RATES = (1 / 3, 1.0, 3.0)
"""What a base learning rate is multiplied with, for every arm alike."""

MakeProgress = Callable[[Sequence[PlannedRun]], AbstractContextManager[PoolProgress]]


@dataclass(frozen=True)
class RateChoice:
    """``choice.json``: the learning rate of an arm, and what was tried."""

    learning_rate: float
    tried: tuple[TunedRate, ...] = ()


def rates_around(base: float) -> tuple[float, ...]:
    """``base`` and its neighbours: the learning rates to try, to three digits."""
    return tuple(float(f"{scale * base:.3g}") for scale in RATES)


@dataclass(frozen=True)
class Grid:
    """``base`` has all that the runs share; the first ``tuning_seeds`` of the ``seeds`` choose the learning rate.

    ``source`` is the content key of the data.
    """

    out: Path
    arms: tuple[Arm, ...]
    base: TrainRequest
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    tuning_seeds: int = 1
    source: str | None = None

    def run(self, arm: Arm, rate: float, seed: int, folder: Path) -> PlannedRun:
        request = replace(self.base, k=arm.rule, learning_rate=rate, seed=seed)
        rated = f", learning rate {rate:g}" if folder.parts[-1].startswith("lr-") else ""
        return PlannedRun(f"K {arm.rule}, seed {seed}{rated}", folder, request, self.source)

    def tuning_runs(self, arm: Arm) -> list[PlannedRun]:
        """A run for each learning rate and each seed that decides, where there is a choice."""
        if len(self.rates) == 1:
            return []
        home = self.out / "tuning" / arm.folder
        first, *others = self.seeds[: self.tuning_seeds]
        names = {first: "", **{seed: f"-seed-{seed}" for seed in others}}
        return [
            self.run(arm, rate, seed, home / f"lr-{rate:g}{name}")
            for seed, name in names.items()
            for rate in self.rates
        ]

    def choice(self, arm: Arm) -> RateChoice | None:
        """The learning rate that was chosen for ``arm`` and what was tried, or None where that is still open."""
        if len(self.rates) == 1:
            return RateChoice(self.rates[0])
        path = self.out / "tuning" / arm.folder / CHOICE
        return read_record(RateChoice, path) if path.exists() else None

    def tried(self, arm: Arm) -> tuple[TunedRate, ...]:
        """What became of each tuning run, as far as it got; nothing before the first of them ended."""
        choice = self.choice(arm)
        if choice is not None:
            return choice.tried
        found = tuple(_tried(self, run) for run in self.tuning_runs(arm))
        return found if any(row.state != "waiting" for row in found) else ()

    def folder(self, arm: Arm, seed: int) -> Path:
        return self.out / "arms" / arm.folder / f"seed-{seed}"

    def runs(self, arm: Arm) -> list[PlannedRun]:
        """One run for each seed, once the learning rate is chosen."""
        choice = self.choice(arm)
        if choice is None:
            return []
        return [self.run(arm, choice.learning_rate, seed, self.folder(arm, seed)) for seed in self.seeds]


def run_grid(grid: Grid, *, jobs: int, threads: int, progress: MakeProgress) -> None:
    """Tune where there is something to tune, then train every seed. What is done already stays done."""
    tuning = [run for arm in grid.arms if grid.choice(arm) is None for run in grid.tuning_runs(arm)]
    train_missing(tuning, jobs, threads, progress)
    for arm in grid.arms:
        choose_rate(grid, arm)
    train_missing([run for arm in grid.arms for run in grid.runs(arm)], jobs, threads, progress)


def train_missing(runs: list[PlannedRun], jobs: int, threads: int, progress: MakeProgress) -> None:
    """Train the runs that have no result yet."""
    left = [run for run in runs if not (run.folder / RESULT).exists()]
    if left:
        with progress(left) as shown:
            train_all(left, jobs=jobs, threads=threads, progress=shown)


def choose_rate(grid: Grid, arm: Arm) -> None:
    """Choose the learning rate, write that down, then move the runs that won. Repeats safely after a kill."""
    runs = grid.tuning_runs(arm)
    if not runs:
        return
    if grid.choice(arm) is None:
        tried = [_tried(grid, run) for run in runs]
        is_open = any(_is_open(row, run) for row, run in zip(tried, runs, strict=True))
        means = _means(tried)
        if not means or is_open:
            return
        best = max(means, key=means.__getitem__)
        write_record(runs[0].folder.parent / CHOICE, RateChoice(best, tuple(tried)))
    choice = grid.choice(arm)
    assert choice is not None
    for run in runs:
        home = grid.folder(arm, run.request.seed)
        won = run.request.learning_rate == choice.learning_rate
        if won and run.folder.exists() and not home.exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            run.folder.replace(home)


def _means(tried: Sequence[TunedRate]) -> dict[float, float]:
    """Mean validation AUC of each learning rate that every seed could be trained with."""
    found: dict[float, list[float]] = {}
    for row in tried:
        found.setdefault(row.learning_rate, []).append(math.nan if row.val_auc is None else row.val_auc)
    means = {rate: sum(aucs) / len(aucs) for rate, aucs in found.items()}
    return {rate: mean for rate, mean in means.items() if not math.isnan(mean)}


def _is_open(row: TunedRate, run: PlannedRun) -> bool:
    failure = failure_of(run.folder)
    return row.state != "done" and not (failure is not None and failure.wrong_request)


def _tried(grid: Grid, run: PlannedRun) -> TunedRate:
    result = read_result(run.folder)
    failure = None if result is not None else failure_of(run.folder)
    assert run.request.learning_rate is not None
    return TunedRate(
        learning_rate=run.request.learning_rate,
        run=run.folder.relative_to(grid.out).as_posix(),
        state="done" if result is not None else "waiting" if failure is None else "failed",
        val_auc=result.best.auc if result is not None and result.best is not None else None,
        seconds=None if result is None else result.seconds,
        error=None if failure is None else failure.error,
    )

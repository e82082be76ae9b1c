"""The protocol of docs/evidence-plan.md for one task: pilot, K*, sweep, schedules; each run in a folder.

1. K = 1 and the largest K, each with three learning rates and seed 0.
2. K* from the curves of K = 1; its three learning rates; the other seeds of what is settled.
3. Every K with every seed, at the rate of the nearest tuned K; ANS and WarmK up to K*, and other turning points of ANS.
4. ANS and WarmK up to the K with the best validation AUC.

Where the learning rate is given there is nothing to tune, and the first seed stands for it. What is done stays done, so
the same call goes on after a stop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evidence.tasks import EvidenceTask
from negwise import Estimate, InputError, NegwiseError
from negwise.jobs import (
    Arm,
    Grid,
    PlannedRun,
    choose_rate,
    estimate_from_log,
    failure_of,
    parse_arm,
    pool_progress,
    train_missing,
)
from negwise.records import CONFIG, RESULT, RunConfig, read_record, read_result, read_run
from negwise.requests import TrainRequest, identity_of
from negwise.schedule import AnsK
from negwise.tasks import with_recipe
from negwise.training import config_changes

Tell = Callable[[str], None]
OWN = ("k", "learning_rate", "seed", "evaluate_training", "device", "threads")
"""What runs of one task may differ in."""


@dataclass(frozen=True)
class Protocol:
    """One task in the folder ``out``; ``base`` is what every run shares.

    ``work`` trains runs that have no result yet: by default in processes of their own, ``jobs`` at a time.
    """

    out: Path
    task: EvidenceTask
    base: TrainRequest
    ks: tuple[int, ...]
    seeds: tuple[int, ...]
    jobs: int = 1
    work: Callable[[list[PlannedRun]], None] | None = None

    def tuned(self, k: int) -> Grid:
        """A K whose learning rate is tuned; that of K = 1 also judges training, as a pilot needs."""
        base = replace(self.base, evaluate_training=True) if k == 1 else self.base
        return Grid(self.out, (parse_arm(str(k), "fixed"),), base, self.task.rates, self.seeds, self.task.judges)

    def check(self) -> None:
        """Refuse a folder whose runs are of another request: they would count as this one's."""
        asked = _shared(identity_of(with_recipe(self.base)))
        for path in sorted(self.out.glob(f"*/*/*/{CONFIG}")):
            changed = config_changes(_shared(read_record(RunConfig, path).run), asked)
            if changed:
                raise InputError(
                    f"{self.out} has runs of its own, and the request changed since: {'; '.join(changed)} "
                    f"({path.parent.relative_to(self.out)}). Nothing was touched. Choose another folder with --out."
                )

    def rated(self, rules: Sequence[str], role: str) -> list[Grid]:
        """Rules at the learning rate of the nearest tuned K."""
        arms = [parse_arm(rule, role) for rule in rules]
        return [Grid(self.out, (each,), self.base, (self.rate_near(each.k or 1.0),), self.seeds) for each in arms]

    def run(self, tell: Tell = print) -> None:
        """Whatever is not done yet."""
        ends = [self.tuned(k) for k in self.ends]
        self._tune(ends)
        star = self.k_star
        tell(f"{self.task.name}: K* = {star}")
        if star == 1 and (self.task.turning or "K*" in self.task.peaks):
            tell(f"{self.task.name}: no schedule rises to 1, so none up to K* is trained.")
        middle = self.tuned(star)
        early = [k for k in self.fixed if k != star and _nearest(k, self.tuned_ks) != star]
        self._train([*ends, *self.sweep(early)], first=[] if star in self.ends else middle.tuning_runs(middle.arms[0]))
        self._tune([middle])
        late = [k for k in self.fixed if k not in early]
        at_star = [*self.rated(self.schedules("K*"), "schedule"), *self.rated(self.turnings, "turning")]
        self._train([middle, *self.sweep(late), *at_star])
        tell(f"{self.task.name}: validation-best K = {self.k_best}")
        self._train(self.rated(self.schedules("best"), "schedule"))

    @property
    def ends(self) -> tuple[int, int]:
        return self.ks[0], self.ks[-1]

    @cached_property
    def estimate(self) -> Estimate:
        return self.estimate_of_seed(self.seeds[0])

    def estimate_of_seed(self, seed: int) -> Estimate:
        """K* from the curves of the K = 1 run with this seed."""
        pilot = self.tuned(1)
        folder = pilot.folder(pilot.arms[0], seed)
        if not (folder / RESULT).exists():
            tried = [folder, *(run.folder for run in pilot.tuning_runs(pilot.arms[0]))]
            why = next((failure.error for each in tried if (failure := failure_of(each))), "it was stopped")
            raise NegwiseError(f"{folder}: the pilot has not ended ({why}).")
        return estimate_from_log(read_run(folder), max_k=float(self.task.max_k))

    @property
    def k_star(self) -> int:
        return self.estimate.k_int

    @property
    def tuned_ks(self) -> tuple[int, ...]:
        return tuple(sorted({*self.ends, self.k_star}))

    @property
    def fixed(self) -> tuple[int, ...]:
        """Every K that is held throughout."""
        return tuple(sorted({*self.ks, self.k_star}))

    @property
    def k_best(self) -> int:
        """The fixed K with the best mean validation AUC, of those with most seeds done; of equal ones the smallest."""
        found = {k: self.val_aucs(str(k)) for k in self.fixed}
        most = max(map(len, found.values()))
        means = {k: np.mean(values) for k, values in found.items() if len(values) == most}
        return max(means, key=lambda k: (means[k], -k))

    def val_aucs(self, rule: str) -> list[float]:
        results = [read_result(self.folder(rule, seed)) for seed in self.seeds]
        bests = [result.best for result in results if result is not None and result.best is not None]
        return [best.auc for best in bests if best.auc is not None]

    def folder(self, rule: str, seed: int) -> Path:
        return self.out / "arms" / parse_arm(rule).folder / f"seed-{seed}"

    def rate_near(self, k: float) -> float:
        grid = self.tuned(_nearest(k, self.tuned_ks))
        choice = grid.choice(grid.arms[0])
        if choice is None:
            raise NegwiseError(f"{self.out}: no learning rate for K = {grid.arms[0].rule} is settled yet.")
        return choice.learning_rate

    def sweep(self, ks: Sequence[int]) -> list[Grid]:
        return self.rated([str(k) for k in ks if k not in self.tuned_ks], "fixed")

    def schedules(self, where: str) -> list[str]:
        """The schedules up to "K*" or up to the validation-"best" K, if the task has them; there are none up to 1."""
        peak = self.k_star if where == "K*" else self.k_best
        return [f"{kind}:{peak}" for kind in ("ans", "warm")] if where in self.task.peaks and peak > 1 else []

    @property
    def turnings(self) -> list[str]:
        """ANS up to K* with other turning points than its own, which is among the schedules."""
        points = [point for point in self.task.turning if point != AnsK.turning_point]
        return [f"ans:{self.k_star}:{point:g}" for point in points] if self.k_star > 1 else []

    def _tune(self, grids: Sequence[Grid]) -> None:
        given = [run for grid in grids if len(grid.rates) == 1 for each in grid.arms for run in grid.runs(each)[:1]]
        open_arms = [(grid, each) for grid in grids for each in grid.arms if grid.choice(each) is None]
        self._work([*given, *(run for grid, each in open_arms for run in grid.tuning_runs(each))])
        for grid in grids:
            for each in grid.arms:
                choose_rate(grid, each)

    def _train(self, grids: Sequence[Grid], first: Sequence[PlannedRun] = ()) -> None:
        """The seeds of these arms, the largest K first since they take longest; ``first`` before all."""
        pairs = sorted(((each, grid) for grid in grids for each in grid.arms), key=lambda pair: -(pair[0].k or 0.0))
        self._work([*first, *(run for each, grid in pairs for run in grid.runs(each))])

    def _work(self, runs: list[PlannedRun]) -> None:
        for run in runs:
            _same_rate(run)
        if self.work is None:
            train_missing(runs, self.jobs, 1, pool_progress)
        else:
            self.work([run for run in runs if not (run.folder / RESULT).exists()])


def _nearest(k: float, among: Sequence[int]) -> int:
    """By the ratio; of equally near ones the smaller."""
    return min(sorted(among), key=lambda other: round(abs(math.log(k / other)), 9))


def _same_rate(run: PlannedRun) -> None:
    """Refuse a run that is done with another learning rate: with other K in the sweep, another one may be nearest."""
    if (run.folder / RESULT).exists():
        had = read_record(RunConfig, run.folder / CONFIG).run["learning_rate"]
        asked = run.request.learning_rate
        if had != asked:
            raise InputError(
                f"{run.folder}: trained with learning rate {had:g}, and this request trains it with {asked:g}. "
                "Ask for the K that the folder began with, or choose another folder with --out."
            )


def _shared(training: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in training.items() if name not in OWN}


def arms_of(protocol: Protocol) -> list[Arm]:
    """Every arm of the task in the order of the page: fixed K, schedules at K* and at the best K, turning points."""
    schedules = dict.fromkeys((*protocol.schedules("K*"), *protocol.schedules("best")))
    return [
        *(parse_arm(str(k), "fixed") for k in protocol.fixed),
        *(parse_arm(rule, "schedule") for rule in schedules),
        *(parse_arm(rule, "turning") for rule in protocol.turnings),
    ]

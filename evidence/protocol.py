"""The protocol of docs/evidence-plan.md for one task: pilot, K*, sweep, schedules; each cell a run in a folder.

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
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evidence.tasks import EvidenceTask
from negwise.errors import InputError, NegwiseError
from negwise.jobs.arms import Arm, arm
from negwise.jobs.crew import Cell, error_of
from negwise.jobs.grid import Grid, settle, work_on
from negwise.jobs.pilot import estimate_of
from negwise.jobs.training import Training
from negwise.jobs.watching import watch_for
from negwise.records import read_run
from negwise.schedule import AnsK
from negwise.theory.estimate import Estimate
from negwise.training.run_folder import CONFIG, RESULT, changes, read_json

Tell = Callable[[str], None]
OWN = ("k", "learning_rate", "seed", "judge_training", "device", "threads")
"""What cells of one task may differ in."""


@dataclass(frozen=True)
class Protocol:
    """One task in the folder ``out``; ``base`` is what every cell shares.

    ``work`` runs cells that have no result yet: by default in processes of their own, ``jobs`` at a time.
    """

    out: Path
    task: EvidenceTask
    base: Training
    ks: tuple[int, ...]
    seeds: tuple[int, ...]
    jobs: int = 1
    work: Callable[[list[Cell]], None] | None = None

    def tuned(self, k: int) -> Grid:
        """A K whose learning rate is tuned; that of K = 1 also judges training, as a pilot needs."""
        base = replace(self.base, judge_training=True) if k == 1 else self.base
        return Grid(self.out, (arm(str(k), "fixed"),), base, self.task.rates, self.seeds, self.task.judges)

    def check(self) -> None:
        """Refuse a folder whose runs are of another request: they would count as this one's."""
        asked = _shared(asdict(self.base))
        for path in sorted(self.out.glob(f"*/*/*/{CONFIG}")):
            changed = changes(_shared(read_json(path)["run"]), asked)
            if changed:
                raise InputError(
                    f"{self.out} has runs of its own, and the request changed since: {'; '.join(changed)} "
                    f"({path.parent.relative_to(self.out)}). Nothing was touched. Choose another folder with --out."
                )

    def rated(self, rules: Sequence[str], role: str) -> list[Grid]:
        """Rules at the learning rate of the nearest tuned K."""
        arms = [arm(rule, role) for rule in rules]
        return [Grid(self.out, (each,), self.base, (self.rate_near(each.k),), self.seeds) for each in arms]

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
        self._train([*ends, *self.sweep(early)], first=[] if star in self.ends else middle.tuning(middle.arms[0]))
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
            tried = [folder, *(cell.folder for cell in pilot.tuning(pilot.arms[0]))]
            why = next((error for each in tried if (error := error_of(each))), "it was stopped")
            raise NegwiseError(f"{folder}: the pilot has not ended ({why}).")
        return estimate_of(read_run(folder), max_k=float(self.task.max_k))

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
        folders = [self.folder(rule, seed) / RESULT for seed in self.seeds]
        return [read_json(path)["best"]["auc"] for path in folders if path.exists()]

    def folder(self, rule: str, seed: int) -> Path:
        return self.out / "arms" / arm(rule).folder / f"seed-{seed}"

    def rate_near(self, k: float) -> float:
        grid = self.tuned(_nearest(k, self.tuned_ks))
        choice = grid.choice(grid.arms[0])
        if choice is None or choice["learning_rate"] is None:
            raise NegwiseError(f"{self.out}: no learning rate for K = {grid.arms[0].rule} is settled yet.")
        return float(choice["learning_rate"])

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
        given = [cell for grid in grids if len(grid.rates) == 1 for each in grid.arms for cell in grid.cells(each)[:1]]
        open_arms = [(grid, each) for grid in grids for each in grid.arms if grid.choice(each) is None]
        self._work([*given, *(cell for grid, each in open_arms for cell in grid.tuning(each))])
        for grid in grids:
            for each in grid.arms:
                settle(grid, each)

    def _train(self, grids: Sequence[Grid], first: Sequence[Cell] = ()) -> None:
        """The seeds of these arms, the largest K first since they take longest; ``first`` before all."""
        pairs = sorted(((each, grid) for grid in grids for each in grid.arms), key=lambda pair: -pair[0].k)
        self._work([*first, *(cell for each, grid in pairs for cell in grid.cells(each))])

    def _work(self, cells: list[Cell]) -> None:
        for cell in cells:
            _same_rate(cell)
        if self.work is None:
            work_on(cells, self.jobs, 1, watch_for)
        else:
            self.work([cell for cell in cells if not (cell.folder / RESULT).exists()])


def _nearest(k: float, among: Sequence[int]) -> int:
    """By the ratio; of equally near ones the smaller."""
    return min(sorted(among), key=lambda other: round(abs(math.log(k / other)), 9))


def _same_rate(cell: Cell) -> None:
    """Refuse a run that is done with another learning rate: with other K in the sweep, another one may be nearest."""
    if (cell.folder / RESULT).exists():
        had, asked = read_json(cell.folder / CONFIG)["run"]["learning_rate"], cell.training["learning_rate"]
        if had != asked:
            raise InputError(
                f"{cell.folder}: trained with learning rate {had:g}, and this request trains it with {asked:g}. "
                "Ask for the K that the folder began with, or choose another folder with --out."
            )


def _shared(training: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in training.items() if name not in OWN}


def arms_of(protocol: Protocol) -> list[Arm]:
    """Every arm of the task in the order of the page: fixed K, schedules at K* and at the best K, turning points."""
    schedules = dict.fromkeys((*protocol.schedules("K*"), *protocol.schedules("best")))
    return [
        *(arm(str(k), "fixed") for k in protocol.fixed),
        *(arm(rule, "schedule") for rule in schedules),
        *(arm(rule, "turning") for rule in protocol.turnings),
    ]

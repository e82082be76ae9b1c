"""Arms times learning rates times seeds, as cells in folders.

The learning rate of an arm is chosen on the first seed or the first few, by mean validation AUC, from the same values
for every arm. The runs that won are the arm's first seeds; nothing is trained twice. A rate that cannot be trained (its
loss is no number) is out; one whose process died, or whose disk was full, is open, and so is the choice, until the same
command tries it again. Folders: ``tuning/<arm>/lr-<rate>/``, ``arms/<arm>/seed-<n>/``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from negwise.jobs.arms import Arm
from negwise.jobs.crew import Cell, Watch, error_of, failed_for_good, work
from negwise.jobs.training import Training
from negwise.training.run_folder import RESULT, read_json, write_json

CHOICE = "choice.json"
RATES = (1 / 3, 1.0, 3.0)
"""What a base learning rate is multiplied with, for every arm alike."""

MakeWatch = Callable[[Sequence[Cell]], AbstractContextManager[Watch]]


def rates_around(base: float) -> tuple[float, ...]:
    return tuple(float(f"{scale * base:.3g}") for scale in RATES)


@dataclass(frozen=True)
class Grid:
    """``base`` says all that the cells share; of the ``seeds`` the first ``judges`` choose the learning rate."""

    out: Path
    arms: tuple[Arm, ...]
    base: Training
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    judges: int = 1

    def cell(self, arm: Arm, rate: float, seed: int, folder: Path) -> Cell:
        training = replace(self.base, k=arm.rule, learning_rate=rate, seed=seed)
        rated = f", learning rate {rate:g}" if folder.parts[-1].startswith("lr-") else ""
        return Cell(f"K {arm.rule}, seed {seed}{rated}", folder, asdict(training))

    def tuning(self, arm: Arm) -> list[Cell]:
        """A cell for each learning rate and each seed that judges it, where there is a choice."""
        if len(self.rates) == 1:
            return []
        home = self.out / "tuning" / arm.folder
        first, *others = self.seeds[: self.judges]
        names = {first: "", **{seed: f"-seed-{seed}" for seed in others}}
        return [
            self.cell(arm, rate, seed, home / f"lr-{rate:g}{name}")
            for seed, name in names.items()
            for rate in self.rates
        ]

    def choice(self, arm: Arm) -> dict[str, Any] | None:
        """The learning rate that was chosen for ``arm`` and what was tried, or None where that is still open."""
        if len(self.rates) == 1:
            return {"learning_rate": self.rates[0], "tried": []}
        path = self.out / "tuning" / arm.folder / CHOICE
        return read_json(path) if path.exists() else None

    def tried(self, arm: Arm) -> list[dict[str, Any]]:
        """What became of each cell of `tuning`, as far as it got; nothing before the first of them ended."""
        choice = self.choice(arm)
        if choice is not None:
            return list(choice["tried"])
        found = [_tried(self, cell) for cell in self.tuning(arm)]
        return found if any(row["state"] != "waiting" for row in found) else []

    def folder(self, arm: Arm, seed: int) -> Path:
        return self.out / "arms" / arm.folder / f"seed-{seed}"

    def cells(self, arm: Arm) -> list[Cell]:
        """One cell for each seed, once the learning rate is chosen."""
        choice = self.choice(arm)
        if choice is None:
            return []
        return [self.cell(arm, choice["learning_rate"], seed, self.folder(arm, seed)) for seed in self.seeds]


def run_grid(grid: Grid, *, jobs: int, threads: int, watching: MakeWatch) -> None:
    """Tune where there is something to tune, then train every seed. What is done already stays done."""
    tuning = [cell for arm in grid.arms if grid.choice(arm) is None for cell in grid.tuning(arm)]
    work_on(tuning, jobs, threads, watching)
    for arm in grid.arms:
        settle(grid, arm)
    work_on([cell for arm in grid.arms for cell in grid.cells(arm)], jobs, threads, watching)


def work_on(cells: list[Cell], jobs: int, threads: int, watching: MakeWatch) -> None:
    left = [cell for cell in cells if not (cell.folder / RESULT).exists()]
    if left:
        with watching(left) as watch:
            work(left, jobs=jobs, threads=threads, watch=watch)


def settle(grid: Grid, arm: Arm) -> None:
    """Choose the learning rate, write that down, then move the runs that won; the same again where it was killed."""
    tried = grid.tuning(arm)
    if not tried:
        return
    if grid.choice(arm) is None:
        found = [_tried(grid, cell) for cell in tried]
        is_open = [row for row, cell in zip(found, tried, strict=True) if _is_open(row, cell)]
        means = _means(found)
        if not means or is_open:
            return
        write_json(
            tried[0].folder.parent / CHOICE, {"learning_rate": max(means, key=means.__getitem__), "tried": found}
        )
    choice = grid.choice(arm)
    assert choice is not None
    for cell in tried:
        home = grid.folder(arm, cell.training["seed"])
        won = cell.training["learning_rate"] == choice["learning_rate"]
        if won and cell.folder.exists() and not home.exists():
            home.parent.mkdir(parents=True, exist_ok=True)
            cell.folder.replace(home)


def _means(tried: Sequence[dict[str, Any]]) -> dict[float, float]:
    """Mean validation AUC of each learning rate that every seed could be trained with."""
    found: dict[float, list[float]] = {}
    for row in tried:
        found.setdefault(row["learning_rate"], []).append(math.nan if row["val_auc"] is None else row["val_auc"])
    means = {rate: sum(aucs) / len(aucs) for rate, aucs in found.items()}
    return {rate: mean for rate, mean in means.items() if not math.isnan(mean)}


def _is_open(row: dict[str, Any], cell: Cell) -> bool:
    return row["state"] != "done" and not failed_for_good(cell.folder)


def _tried(grid: Grid, cell: Cell) -> dict[str, Any]:
    done = (cell.folder / RESULT).exists()
    result = read_json(cell.folder / RESULT) if done else None
    error = None if done else error_of(cell.folder)
    return {
        "learning_rate": cell.training["learning_rate"],
        "run": cell.folder.relative_to(grid.out).as_posix(),
        "state": "done" if done else "waiting" if error is None else "failed",
        "val_auc": result["best"]["auc"] if result and result["best"] else None,
        "seconds": result["seconds"] if result else None,
        "error": error,
    }

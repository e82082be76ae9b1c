"""The runs of the second study, block by block, as docs/evidence-plan.md has them, and how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from negwise import InputError

SIZES = (1_000, 10_000, 100_000)
"""Items of the simulated catalogues."""
REUTERS: dict[str, Any] = {"data": "reuters/reuters21578.jsonl.xz", "skip_bad": 2535}
MADE: dict[str, Any] = {"model": "bert4rec", "queries": 10_000}
DATA: dict[str, dict[str, Any]] = {
    "items": {"data": "ml-1m/ml-1m_sas.txt.xz", "model": "bert4rec"},
    "matching": {**REUTERS, "model": "siamese-transformer"},
    "docs": {"data": "docs", "model": "siamese-cnn"},
    "news": {"data": "mind", "model": "nrms", "split": "user", "folds": 5},
    "clicks": {"data": "clicks", "model": "nrms"},
    "naml": {"data": "mind", "model": "naml", "split": "user", "folds": 5},
    "lstur": {"data": "mind", "model": "lstur", "split": "user", "folds": 5},
    "cnn": {**REUTERS, "model": "siamese-cnn"},
    "lstm": {**REUTERS, "model": "siamese-lstm"},
    "wide": {**REUTERS, "model": "siamese-transformer"},
    "mined": {"data": "made/mined.jsonl", "model": "siamese-transformer"},
    "packages": {"data": "made/packages.jsonl", "model": "siamese-cnn"},
    "histories": {"data": "made/histories.csv", **MADE},
    **{f"simulated-{items}": {"data": f"made/simulated-{items}.csv", **MADE} for items in SIZES},
}
"""Fields of `TrainRequest`; files lie in the folder ``--data``; what is under ``made`` is made there first.

``wide`` is ``matching`` whose held-out titles are ranked among the bodies of all splits; ``mined`` is ``matching`` with
hard negatives that are given.
"""
STARS = {"news": 4, "naml": 4, "lstur": 4, "matching": 145, "cnn": 340, "lstm": 390, "items": 21}
"""K* of the first study, by its longest pilot of a tuned model."""
SHARES = (0.0, 0.05, 0.2, 0.4)
"""Of training positives at random."""
EQUAL_TIME = {
    "matching": {"100": 800, "1": 1740, "4": 1140},
    "docs": {"100": 400, "1": 820, "4": 570},
}
"""Steps that take as long as those of K = 100, by the first study's milliseconds (docs/evidence-rules.md)."""
BLOCKS = (
    "end-items", "rates", "noise", "end-matching", "end-docs", "end-news", "rules", "sizes", "models", "negatives",
    "time",
)  # fmt: skip
"""In the order in which they are run; the last is cut first."""


@dataclass(frozen=True)
class Cell:
    """One run. ``scale`` multiplies the recipe's rate; ``noise`` is the share of training positives at random.

    ``negatives`` is where they come from, "" the recipe's place; ``correct`` corrects for that (logQ). Two blocks that
    ask for the same run share it.
    """

    task: str
    k: str
    seed: int
    steps: int
    scale: float = 1.0
    noise: float = 0.0
    negatives: str = ""
    correct: bool = False

    @property
    def name(self) -> str:
        rate = "" if self.scale == 1 else f", {self.scale:g} x the rate"
        noise = "" if self.noise == 0 else f", {self.noise:.0%} noise"
        drawn = f", {self.negatives}{' corrected' if self.correct else ''}" if self.negatives else ""
        return f"{self.task}, K = {self.k}{rate}{noise}{drawn}, {self.steps} steps, seed {self.seed}"


def cells_of(block: str) -> list[Cell]:
    """The runs of a block, those that matter most first."""
    five, three = range(10, 15), range(10, 13)
    match block:
        case "end-items":
            return _grid({"items": 7500}, ("1", "1000", "100", "20", "all"), five)
        case "end-matching":
            return _grid({"matching": 4000}, ("1", "1000", "100", "20", "300"), five)
        case "end-docs":
            return _grid({"docs": 2000}, ("1", "100", "20"), five)
        case "end-news":
            return _grid({"news": 1750}, ("1", "100", "4"), five)
        case "rules":
            steps = {"items": 2500, "matching": 800, "docs": 400}
            return _grid(steps, ("metric", "online", "300", "100", "20", "1000", "1"), range(20, 30))
        case "rates":
            cells = _grid({"items": 2500, "matching": 800}, ("1", "20", "100", "1000", "300"), (10,))
            return [replace(cell, scale=scale) for cell in cells for scale in (1.0, 0.25, 0.5, 2.0, 4.0)]
        case "noise":
            cells = _grid({"matching": 800, "items": 2500}, ("1", "20", "100", "1000", "online"), three)
            return [replace(cell, noise=noise) for cell in cells for noise in SHARES]
        case "sizes":
            steps = {"wide": 800, "packages": 800, **dict.fromkeys(("histories", *_simulated()), 2500)}
            return _grid(steps, ("1", "metric", "20", "100", "1000"), three)
        case "models":
            steps = {"news": 350, "naml": 700, "lstur": 350, "matching": 2000, "cnn": 2000, "lstm": 2000, "items": 2500}
            return [
                cell
                for task, many in steps.items()
                for star in (str(STARS[task]),)
                for cell in _grid({task: many}, dict.fromkeys(("1", star, "100", "online", f"ans:{star}")), three)
            ]
        case "negatives":
            plain = _grid({"items": 2500, "matching": 800}, ("1", "20", "100", "1000"), three)
            popular = [replace(cell, negatives="popularity") for cell in plain if cell.task == "items"]
            corrected = [replace(cell, correct=True) for cell in popular]
            mined = [replace(cell, task="mined") for cell in plain if cell.task == "matching"]
            return [*mined, *popular, *corrected, *plain]
        case "time":
            return [
                Cell(task, k, seed, many)
                for task, by_k in EQUAL_TIME.items()
                for seed in five
                for k, many in by_k.items()
            ]
    raise InputError(f"{block}: no such block; expected {', '.join(BLOCKS)}.")


def cells_in_order(blocks: Iterable[str]) -> list[Cell]:
    """The runs of several blocks, each once."""
    return list(dict.fromkeys(cell for block in blocks for cell in cells_of(block)))


def _grid(steps: Mapping[str, int], ks: Iterable[str], seeds: Iterable[int]) -> list[Cell]:
    """Every K with every seed, task by task and seed by seed."""
    chosen, rules = tuple(seeds), tuple(ks)
    return [Cell(task, k, seed, many) for task, many in steps.items() for seed in chosen for k in rules]


def _simulated() -> list[str]:
    return [f"simulated-{items}" for items in SIZES]


MILLISECONDS = {"bert4rec": (54, 0.002), "siamese-transformer": (80, 0.045), "siamese-cnn": (45, 0.04),
                "siamese-lstm": (60, 0.05), "nrms": (70, 0.0), "naml": (70, 0.0), "lstur": (70, 0.0)}  # fmt: skip
"""Of a step with twelve runs on one H200, and how many more for each negative: `benchmarks/results/online.json`."""
LARGEST = {"metric": 800, "online": 800, "all": 3400}
"""K of rules, for the time that they take; of others it is the number in their name."""
METRIC = {"wide": 3738, "simulated-10000": 2200, "simulated-100000": 22_000}
"""K of ``metric`` where it is another."""
MAKING = {"histories": 10.0, "packages": 120.0, "mined": 90.0, **{f"simulated-{n}": 5 + n / 2500 for n in SIZES}}
"""Seconds until made data is there."""


def seconds_of(job: Cell | str) -> float:
    """About how long a run takes beside eleven others on an H200; of a name, how long its data takes to be made."""
    if isinstance(job, str):
        return MAKING[job]
    rule = job.k.rpartition(":")[2]
    k = METRIC.get(job.task, 0) if rule == "metric" else 0
    k = k or (int(rule) if rule.isdecimal() else LARGEST[rule])
    plain, each = MILLISECONDS[DATA[job.task]["model"]]
    return 5 + job.steps * (plain + each * k) / 1000

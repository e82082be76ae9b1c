"""The second study: runs to the end of training, each with its learning curve, K, win rate and every test rank.

``python -m evidence.second_study BLOCK... --out DIR --workers N --limit SECONDS`` trains the cells of the
plan in their order; what ``--done FILE...`` have is not trained again. One file a call: ``DIR/<blocks>.npz``.
``merge FILE... --out FILE`` puts calls together, ``tables FILE`` prints what they say. On a machine with a GPU::

    S="python -m evidence.second_study"; D="--data DATA --workers 12 --limit 580"
    $S end-items $D --out runs/second-1
    $S rates noise $D --out runs/second-2 --done runs/second-*/*.npz
    $S end-matching rules sizes models $D --out runs/second-3 --done runs/second-*/*.npz
    $S negatives time end-docs $D --out runs/second-4 --done runs/second-*/*.npz
    $S merge runs/second-*/*.npz --out runs/second.npz
    $S tables runs/second.npz

The same line again, with another ``--out``, trains what a limit cut off.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.sizes import click_histories, simulated
from negwise.tasks import Task

SIZES = (1_000, 10_000, 100_000)
"""Items of the simulated catalogues."""
DATA: dict[str, dict[str, Any]] = {
    "items": {"data": "ml-1m/ml-1m_sas.txt.xz", "model": "bert4rec"},
    "matching": {"data": "reuters/reuters21578.jsonl.xz", "model": "siamese-transformer", "skip_bad": 2535},
    "docs": {"data": "docs", "model": "siamese-cnn"},
    "news": {"data": "mind", "model": "nrms", "split": "user", "folds": 5},
    "clicks": {"data": "clicks", "model": "nrms"},
    "naml": {"data": "mind", "model": "naml", "split": "user", "folds": 5},
    "lstur": {"data": "mind", "model": "lstur", "split": "user", "folds": 5},
    "cnn": {"data": "reuters/reuters21578.jsonl.xz", "model": "siamese-cnn", "skip_bad": 2535},
    "lstm": {"data": "reuters/reuters21578.jsonl.xz", "model": "siamese-lstm", "skip_bad": 2535},
    "histories": {"data": "made/histories.csv", "model": "bert4rec"},
    **{f"simulated-{items}": {"data": f"made/simulated-{items}.csv", "model": "bert4rec"} for items in SIZES},
}
"""Fields of `TrainRequest`; files lie in the folder ``--data``; what is under ``made`` is made there first."""
STARS = {"news": 4, "naml": 4, "lstur": 4, "matching": 145, "cnn": 340, "lstm": 390, "items": 21}
"""K* of the first study, by its longest pilot of a tuned model."""
EVALUATIONS = 25
RANKS = ("above", "tied", "positives", "sizes")


@dataclass(frozen=True)
class Cell:
    """One run. ``scale`` multiplies the recipe's rate; ``noise`` is the share of training positives at random.

    ``negatives`` is where they come from, "" the recipe's place; ``correct`` corrects for that (logQ).
    """

    block: str
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
    """The cells of a block, those that matter most first."""
    seeds, few = range(10, 15), range(10, 13)
    match block:
        case "end-items":
            return _grid(block, {"items": 7500}, ("1", "1000", "100", "20", "all"), seeds)
        case "end-matching":
            return _grid(block, {"matching": 4000}, ("1", "1000", "100", "20", "2000"), seeds)
        case "end-docs":
            return _grid(block, {"docs": 2000}, ("1", "1000", "100", "20"), seeds)
        case "rules":
            steps = {"items": 2500, "matching": 800, "docs": 400}
            return _grid(block, steps, ("metric", "online", "300", "100", "20", "1000", "1"), range(20, 30))
        case "rates":
            cells = _grid(block, {"items": 2500, "matching": 800}, ("1", "20", "100", "1000", "300"), (10,))
            return [replace(cell, scale=scale) for cell in cells for scale in (1.0, 0.25, 0.5, 2.0, 4.0)]
        case "noise":
            cells = _grid(block, {"matching": 800, "items": 2500}, ("1", "20", "100", "1000", "online"), few)
            return [replace(cell, noise=noise) for cell in cells for noise in (0.0, 0.05, 0.2, 0.4)]
        case "models":
            steps = {"news": 350, "naml": 700, "lstur": 350, "matching": 2000, "cnn": 2000, "lstm": 2000, "items": 2500}
            return [
                cell
                for task, many in steps.items()
                for star in (str(STARS[task]),)
                for cell in _grid(block, {task: many}, dict.fromkeys(("1", star, "100", "online", f"ans:{star}")), few)
            ]
        case "sizes":
            steps = dict.fromkeys(("histories", *(f"simulated-{items}" for items in SIZES)), 2500)
            return _grid(block, steps, ("1", "metric", "20", "100", "1000"), few)
        case "negatives":
            cells = _grid(block, {"items": 2500}, ("1", "20", "100", "1000"), few)
            return [
                replace(cell, negatives="popularity", correct=correct) for cell in cells for correct in (False, True)
            ]
        case "time":
            return [
                Cell(block, task, k, seed, many)
                for task, by_k in EQUAL_TIME.items()
                for seed in seeds
                for k, many in by_k.items()
            ]
    raise SystemExit(f"{block}: no such block; expected {', '.join(BLOCKS)}.")


def _grid(block: str, steps: Mapping[str, int], ks: Iterable[str], seeds: Iterable[int]) -> list[Cell]:
    """Every K with every seed, task by task and seed by seed."""
    chosen, rules = tuple(seeds), tuple(ks)
    return [Cell(block, task, k, seed, many) for task, many in steps.items() for seed in chosen for k in rules]


EQUAL_TIME = {
    "matching": {"1": 1740, "4": 1140, "100": 800},
    "docs": {"1": 820, "4": 570, "100": 400},
}
"""Steps that take as long as those of K = 100, by the first study's milliseconds (docs/evidence-rules.md)."""
BLOCKS = (
    "end-items", "rates", "noise", "end-matching", "rules", "sizes", "models", "negatives", "time", "end-docs",
)  # fmt: skip
"""In the order in which they are run; the last is cut first."""


def train(cell: Cell, data: Path) -> dict[str, Any]:
    """The record of a cell, with the arrays of its test ranks."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import fit_task
    from negwise.records import read_run
    from negwise.requests import TrainRequest
    from negwise.tasks import make_task, with_recipe
    from negwise.training import read_ranks

    fields: dict[str, Any] = dict(DATA[cell.task])
    if fields["data"] not in ("docs", "clicks"):
        fields["data"] = str(data / fields["data"])
    request = with_recipe(
        TrainRequest(
            **fields, k=cell.k, seed=cell.seed, steps=cell.steps, eval_every=-(-cell.steps // EVALUATIONS), threads=1,
            evaluate_training=cell.k == "1", negatives=cell.negatives or None, correct=cell.correct,
        )
    )  # fmt: skip
    assert request.learning_rate is not None
    request = replace(request, learning_rate=request.learning_rate * cell.scale)
    task = make_task(request)
    if cell.noise:
        task = with_noise(task, cell.noise, cell.seed)
    with tempfile.TemporaryDirectory() as folder:
        result = fit_task(request, task, folder, show=False)
        log, ranks = read_run(folder), read_ranks(Path(folder))
    metric = str(request.metric)
    names = (metric, "auc", "hit@10", "ndcg@10", "mrr")
    curves = {
        split: [
            {"step": one.step, "auc_se": _rounded(one.auc_se), **{name: _rounded(one.value(name)) for name in names}}
            for one in log.of_split(split)
        ]
        for split in ("val", "train")
    }
    every = max(len(log.steps) // 100, 1)
    path = [
        {"step": one.step, "seconds": one.time, "k": one.k, "win_rate": one.win_rate, "hit_rate": one.hit_rate}
        for one in log.steps[::every]
    ]
    return {
        **asdict(cell), "metric": metric, "rate": request.learning_rate, "seconds": result.seconds,
        "best": None if result.best is None else result.best.step,
        "test": {name: _rounded(result.evaluations["test"].value(name)) for name in names},
        "curves": curves, "path": path,
        **{name: np.asarray(getattr(ranks, name)).astype(np.int32) for name in RANKS},
    }  # fmt: skip


def make_data(cells: Sequence[Cell], data: Path) -> None:
    """Write the catalogues that these cells need and that are not there."""
    for name in dict.fromkeys(cell.task for cell in cells if DATA[cell.task]["data"].startswith("made/")):
        path = data / DATA[name]["data"]
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            (click_histories(data / "mind", part) if name == "histories" else simulated(int(name[10:]), part))
            part.replace(path)


def with_noise(task: Task, share: float, seed: int) -> Task:
    """``task`` with ``share`` of its training positives replaced by random ones; validation and test stay as they are.

    Of sequences every training item is a positive. What was known of a row is still never drawn as its negative.
    """
    numbers = np.random.default_rng([seed, 5])
    if task.data.windows is not None:
        windows = task.data.windows
        items = replaced(windows.items, share, (0, task.data.n_items), numbers)
        return replace(task, examples=type(task.examples)(replace(windows, items=items)))
    train = task.data.train
    positives = replaced(train.positives, share, train.candidates, numbers)
    return replace(task, examples=replace(train, positives=positives))


def replaced(ids: NDArray[Any], share: float, among: tuple[int, int], numbers: np.random.Generator) -> NDArray[Any]:
    """A copy of ``ids`` (N,) in which each is one of ``among`` at random with probability ``share``."""
    chosen = numbers.random(len(ids)) < share
    return np.where(chosen, numbers.integers(*among, len(ids)), ids).astype(ids.dtype)


def save(path: Path, found: Sequence[dict[str, Any]]) -> None:
    """Records as JSON, and their arrays."""
    arrays = {f"{name}-{at}": one[name] for at, one in enumerate(found) for name in RANKS}
    plain = [{name: value for name, value in one.items() if name not in RANKS} for one in found]
    with path.open("wb") as file:
        np.savez_compressed(file, records=np.array(json.dumps(plain)), **arrays)


def read(path: Path) -> list[dict[str, Any]]:
    """What `save` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        plain = json.loads(str(stored["records"]))
        return [{**one, **{name: stored[f"{name}-{at}"] for name in RANKS}} for at, one in enumerate(plain)]


def cell_of(record: dict[str, Any]) -> Cell:
    return Cell(**{name: record[name] for name in Cell.__dataclass_fields__})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m evidence.second_study", description=__doc__)
    parser.add_argument("names", nargs="+", help=f"blocks: {', '.join(BLOCKS)}; or merge or tables, and files")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="a folder; for merge, the file")
    parser.add_argument("--data", type=Path, default=Path(), help="the folder of the files")
    parser.add_argument("--done", type=Path, nargs="*", default=[])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    if asked.names[0] == "merge":
        by_cell = {cell_of(one): one for name in asked.names[1:] for one in read(Path(name))}
        save(asked.out, list(by_cell.values()))
        return
    if asked.names[0] == "tables":
        from evidence.second_tables import table_of

        found = [one for name in asked.names[1:] for one in read(Path(name))]
        for block in dict.fromkeys(one["block"] for one in found):
            print(f"{block}\n\n{table_of(block, found)}\n")
        return
    known = {cell_of(one) for path in asked.done for one in read(path)}
    cells = [cell for block in asked.names for cell in cells_of(block) if cell not in known]
    make_data(cells, asked.data)
    asked.out.mkdir(parents=True, exist_ok=True)
    began, done = time.monotonic(), []
    pool = ProcessPoolExecutor(asked.workers, mp_context=get_context("spawn"))
    futures = {pool.submit(train, cell, asked.data): cell for cell in cells}
    try:
        for future in as_completed(futures, timeout=asked.limit):
            cell = futures[future]
            if (error := future.exception()) is not None:
                print(f"{cell.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                continue
            done.append(future.result())
            save(asked.out / f"{'-'.join(asked.names)}.npz", done)
            print(f"{time.monotonic() - began:4.0f} s  {cell.name}: {done[-1]['test']}", flush=True)
    except TimeoutError:
        print(f"{len(done)} of {len(cells)} cells done; the time is up", file=sys.stderr)
    finally:
        for process in (pool._processes or {}).values():
            process.kill()


if __name__ == "__main__":
    main()

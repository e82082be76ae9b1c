"""Runs of the second study: one is trained, many side by side within a limit, and what came of them is kept.

The record of a folder is ``runs.json``, every run with its curves and its path of K, win rate and hit rate, and
``runs.safetensors``, the rank of every test query of every run.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save

from evidence.provenance import code
from evidence.record import rounded
from evidence.second_cells import DATA, Cell, seconds_of
from evidence.second_data import among_all, make_data, path_of, with_noise
from negwise import InputError
from negwise.files import read_json, write_atomically
from negwise.metrics import Ranks

Run = dict[str, Any]
Job = Cell | str
"""A run to train, or the name of a task whose data is to be made."""
EVALUATIONS, POINTS = 25, 50
"""Evaluations of a run after that of the start; points of its path that are kept."""
RANKS = ("above", "tied", "positives", "sizes")
RUNS, STANDINGS = "runs.json", "runs.safetensors"


def train(cell: Cell, data: Path) -> Run:
    """The record of a cell, with its test ranks."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import fit_task, machine, versions
    from negwise.records import read_run
    from negwise.requests import TrainRequest
    from negwise.tasks import make_task, resolve_device, with_recipe
    from negwise.training import read_ranks

    path = path_of(cell.task, data)
    fields = DATA[cell.task] if path is None else {**DATA[cell.task], "data": str(path)}
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
    if cell.task == "wide":
        task = among_all(task)
    with tempfile.TemporaryDirectory() as folder:
        result = fit_task(request, task, folder, show=False)
        log, ranks = read_run(folder), read_ranks(Path(folder))
    metric = str(request.metric)
    names = dict.fromkeys((metric, "auc", "hit@10", "ndcg@10", "mrr"))
    path_steps = log.steps[:: max(len(log.steps) // POINTS, 1)]
    return rounded(
        {
            **asdict(cell), "metric": metric, "rate": request.learning_rate, "seconds": result.seconds,
            "best": None if result.best is None else result.best.step,
            "digest": task.data.digest, "candidates": float(np.mean(ranks.sizes)),
            "code": code()["source"], "machine": machine(resolve_device(request.device)), "versions": versions(),
            "test": {name: result.evaluations["test"].value(name) for name in names},
            "curves": {
                split: {
                    name: [getattr(one, name) for one in log.of_split(split)]
                    for name in ("step", "auc", "auc_se", "pairs")
                } | {metric: [one.value(metric) for one in log.of_split(split)]}
                for split in ("val", "train") if log.of_split(split)
            },
            "path": {
                name: [getattr(one, name) for one in path_steps]
                for name in ("step", "time", "k", "win_rate", "hit_rate")
            },
        }
    ) | {"ranks": Ranks(*(np.asarray(getattr(ranks, name)) for name in RANKS))}  # fmt: skip


def work(job: Job, data: Path, out: Path, done: tuple[Path, ...]) -> Run | None:
    """Train a cell, or make the data of a task."""
    if isinstance(job, Cell):
        return train(job, data)
    make_data(job, data, out, done)
    return None


def run_jobs(
    do: Callable[[Job], Any],
    jobs: Sequence[Job],
    *,
    workers: int,
    limit: float,
    ready: Callable[[Job], bool],
    keep: Callable[[Job, Any, float], None],
    seconds: Callable[[Job], float] = seconds_of,
) -> list[str]:
    """``keep(job, found, seconds since the start)`` for each of ``jobs`` that is done within ``limit`` seconds.

    A free process takes the first job that is ``ready`` and should end in time, by ``seconds`` and by how long the jobs
    so far took. A job that fails, or whose process dies, is left out. Returns what was not done, and why.
    """
    began, left = time.monotonic(), list(jobs)
    pools = [_pool() for _ in range(min(workers, len(jobs)))]
    running: dict[Future[Any], tuple[Job, int, float]] = {}
    pace, failed = [1.0], []
    try:
        while True:
            spent = time.monotonic() - began
            for slot in set(range(len(pools))) - {slot for _, slot, _ in running.values()}:
                fits = (job for job in left if ready(job) and spent + seconds(job) * np.median(pace) < limit)
                if (job := next(fits, None)) is not None:
                    left.remove(job)
                    running[pools[slot].submit(do, job)] = job, slot, spent
            if not running or spent >= limit:
                break
            for future in wait(running, timeout=limit - spent, return_when=FIRST_COMPLETED).done:
                job, slot, started = running.pop(future)
                now = time.monotonic() - began
                if (error := future.exception()) is not None:
                    failed.append(f"{_name(job)}: {type(error).__name__}: {error}")
                    _end(pools[slot])
                    pools[slot] = _pool()
                    continue
                pace = [*pace[-4 * workers :], (now - started) / seconds(job)] if isinstance(job, Cell) else pace
                keep(job, future.result(), now)
    finally:
        for pool in pools:
            _end(pool)
    killed = [f"{_name(job)}: the time is up" for job, *_ in running.values()]
    return [*failed, *killed, *(f"{_name(job)}: {_why(job, ready)}" for job in left)]


def _pool() -> ProcessPoolExecutor:
    """One process: a pool of many breaks as a whole when one of them dies."""
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """Else a process whose parent was killed would train on."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _end(pool: ProcessPoolExecutor) -> None:
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def _name(job: Job) -> str:
    return job.name if isinstance(job, Cell) else f"the data of {job}"


def _why(job: Job, ready: Callable[[Job], bool]) -> str:
    return f"takes about {seconds_of(job):.0f} s, more than is left" if ready(job) else "its data is not there"


def train_all(
    cells: Iterable[Cell], data: Path, out: Path, done: tuple[Path, ...], *, workers: int, limit: float
) -> list[str]:
    """Train what neither ``out`` nor the folders ``done`` have; ``out`` has each run at once. Returns what is left."""
    found = read(out) if (out / RUNS).exists() else []
    known = {cell_of(run) for run in [*found, *read_all(done)]}
    left = [cell for cell in cells if cell not in known]
    makers = [name for name in dict.fromkeys(cell.task for cell in left) if _is_made(name, data)]
    out.mkdir(parents=True, exist_ok=True)

    def ready(job: Job) -> bool:
        path = path_of(job.task, data) if isinstance(job, Cell) else None
        return path is None or path.exists()

    def keep(job: Job, run: Run | None, seconds: float) -> None:
        if run is not None:
            found.append(run)
            save_runs(found, out)
        print(f"{seconds:4.0f} s  {_name(job)}{'' if run is None else ': ' + str(run['test'])}", flush=True)

    return run_jobs(
        _Work(data, out, done), [*makers, *left], workers=workers, limit=limit, ready=ready, keep=keep
    )  # fmt: skip


class _Work:
    """`work` with its folders, as another process gets it."""

    def __init__(self, *folders: Any) -> None:
        self.folders = folders

    def __call__(self, job: Job) -> Run | None:
        return work(job, *self.folders)


def _is_made(task: str, data: Path) -> bool:
    path = path_of(task, data)
    return path is not None and path.parent.name == "made" and not path.exists()


def save_runs(runs: Sequence[Run], folder: Path) -> None:
    """Both files of a folder; a kill leaves the old ones, or the new."""
    arrays: dict[str, Any] = {}
    for at, run in enumerate(runs):
        for name in RANKS:
            values = getattr(run["ranks"], name)
            if name != "tied" or (values > 1).any():
                arrays[f"{name}/{at}"] = values.astype(np.min_scalar_type(int(values.max(initial=0))))
    plain = [{name: value for name, value in run.items() if name != "ranks"} for run in runs]
    lines = ",\n".join(json.dumps(run, allow_nan=False, separators=(",", ":")) for run in plain)
    write_atomically(folder / STANDINGS, save(arrays))
    write_atomically(folder / RUNS, f"[{lines}]\n")


def read(folder: Path) -> list[Run]:
    """What `save_runs` wrote; ranks that belong to a run that is not in the first file yet are left out."""
    if not (folder / RUNS).exists():
        raise InputError(f"{folder}: expected a folder with {RUNS}, as python -m evidence.second_study run writes it.")
    stored = load_file(folder / STANDINGS)
    found = []
    for at, run in enumerate(read_json(folder / RUNS)):
        parts = [stored.get(f"{name}/{at}") for name in RANKS]
        parts[1] = np.ones_like(parts[0]) if parts[1] is None else parts[1]
        found.append({**run, "ranks": Ranks(*(np.asarray(part).astype(np.int64) for part in parts))})
    return found


def read_all(folders: Iterable[Path]) -> list[Run]:
    """The runs of several folders, each cell once. Refuses runs of one task on different data."""
    by_cell: dict[Cell, Run] = {}
    seen: dict[str, tuple[str, Path]] = {}
    for folder in folders:
        for run in read(folder):
            digest, where = seen.setdefault(run["task"], (run["digest"], folder))
            if digest != run["digest"]:
                raise InputError(
                    f"{folder}: its runs of {run['task']} have the data {run['digest'][:8]}, those of {where} "
                    f"{digest[:8]}; they cannot be compared. Leave one of the folders out."
                )
            by_cell.setdefault(cell_of(run), run)
    return list(by_cell.values())


def cell_of(run: Run) -> Cell:
    return Cell(**{name: run[name] for name in Cell.__dataclass_fields__})

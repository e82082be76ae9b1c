"""The main job against plain runs in the same time: ``python -m benchmarks equal_time`` prints the record.

To measure anew: ``python -m benchmarks.equal_time times TASK... --out DIR`` times steps at every K, on a quiet machine
and with all of its cores, as the main job has them. ``choose`` trains the peers, `train` with each fixed K (``--k``:
only these) at a third, once and three times the recipe's rate, for the steps that ``--seconds`` buy at their own pace,
two seeds; they may share the machine (``--workers``). ``compare`` trains the best peer, K = 100 and K = 1 at the
recipe's rate with five other seeds. ``run`` does the main job with that budget and the same five seeds, one after
another, alone. ``record FILE...`` writes ``results/equal_time.json``, where other cells stay as they are; the values by
query of later cells are in ``results/equal_time/``. Where there are fewer than 100 negatives, all of them stand for
K = 100.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import data
from benchmarks.crossed import Contrast, crossed_contrast
from benchmarks.online import TASKS, read, save
from benchmarks.side_by_side import run_jobs
from benchmarks.table import Row
from negwise.files import write_atomically
from negwise.metrics.model_ranking import subset_places

RECORD = Path(__file__).parent / "results" / "equal_time.json"
CHOOSING, COMPARING = (400, 401), (500, 501, 502, 503, 504)
"""Seeds; none was used for anything before."""
SCALES = (1 / 3, 1.0, 3.0)
TOLERANCE, UNDECIDED = 0.03, 0.10
RUN, BASE = "run", "1 at 1 x"
BASE_SEEDS = COMPARING[:2]
"""K = 1 is trained with fewer seeds: only the size of the gain rests on it."""
KNOWN = {("ml-1m", "ndcg@10"): "1000 at 1 x"}
"""Best peers that are on record already: K by the choosing runs of ``benchmarks.online``, the rate by those of
``benchmarks.recipes``."""


@dataclass(frozen=True)
class Job:
    """A peer (a fixed K and a scale of the recipe's rate), or the main job where ``k`` is "run"."""

    task: str
    metric: str
    k: str
    scale: float
    seed: int
    steps: int = 0
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return RUN if self.k == RUN else f"{self.k} at {self.scale:.3g} x"


def fields_of(task: str) -> dict[str, Any]:
    """What `train` and `run` share."""
    one = TASKS[task]
    kept = {name: value for name, value in one.fields.items() if name in ("model", "data", "split", "skip_bad")}
    return kept if one.file is None else {"data": str(data.need(one.file)), **kept}


def times_of(task: str) -> dict[str, Any]:
    """Seconds of a step at every K of a task, and of an evaluation."""
    warnings.filterwarnings("ignore")
    from negwise.jobs.plan import parallelism
    from negwise.jobs.step_timing import step_costs, time_one_run
    from negwise.requests import TrainRequest
    from negwise.tasks import make_task, max_negatives, with_recipe
    from negwise.tasks.recipes import resolve_device

    request = with_recipe(TrainRequest(**fields_of(task), k="100", evaluate_training=False))
    request = replace(request, threads=parallelism(1, resolve_device(request.device), 1)[1])
    made = make_task(request)
    most = max_negatives(made.data, request.negatives, request.pool, request.batch_size)
    ks = sorted({float(most) if k == "all" else min(float(k), float(most)) for k in TASKS[task].ks})
    costs = {cost.k: cost.seconds for cost in step_costs(request, made, ks)}
    steps = {k: costs.get(float(most) if k == "all" else min(float(k), float(most))) for k in TASKS[task].ks}
    evaluation = time_one_run(request, made)[0].evaluation
    return {"task": task, "threads": request.threads, "steps": steps, "evaluation": evaluation}


def train(job: Job) -> list[dict[str, Any]]:
    """A peer: its scores, and the metric of each test query."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import train_run
    from negwise.requests import TrainRequest
    from negwise.tasks import with_recipe

    request = with_recipe(
        TrainRequest(
            **fields_of(job.task), k=job.k, metric=job.metric, seed=job.seed, steps=job.steps, threads=1,
            eval_every=-(-job.steps // 10), evaluate_training=False,
        )
    )  # fmt: skip
    assert request.learning_rate is not None
    with tempfile.TemporaryDirectory() as folder:
        request = replace(request, learning_rate=request.learning_rate * job.scale, out=folder)
        result = train_run(request, show=False, any_k=True)
        return [_found(job, Path(folder), result.record.evaluations, job.steps, result.record.seconds)]


def run_main_job(job: Job) -> list[dict[str, Any]]:
    """The main job with a budget, and its wall time, from the call to its result."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import run_job
    from negwise.records import encode, read_race
    from negwise.requests import RunRequest

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        request = RunRequest(
            **fields_of(job.task), out=folder, metric=job.metric, seed=job.seed, budget=f"{job.seconds:g}s"
        )
        result = run_job(request, log=lambda _: None)
        wall = time.monotonic() - began
        done = result.record.arms[0].done[0]
        scores = {"val": done.val, "test": done.test}
        found = _found(job, Path(folder) / done.run, scores, done.steps or 0, wall)
        race = [encode(one) for one in read_race(Path(folder) / "race.jsonl")]
        return [{**found, "race": race}]


def _found(job: Job, folder: Path, scores: Any, steps: int, seconds: float | None) -> dict[str, Any]:
    from negwise.metrics.per_query import query_values
    from negwise.training import read_ranks

    ranks = read_ranks(folder)
    return {
        **asdict(job), "rule": job.name, "steps": steps, "seconds": seconds,
        **{name: {job.metric: round(scores[name].value(job.metric), 5)} for name in ("val", "test")},
        "values": np.nan_to_num(query_values(ranks, job.metric)).astype(np.float32),
        "wins": np.nan_to_num(query_values(ranks, "auc")).astype(np.float32),
    }  # fmt: skip


def usual(task: str) -> str:
    """K = 100 at the recipe's rate, or all negatives where there are fewer."""
    return "100 at 1 x" if "100" in TASKS[task].ks else "all at 1 x"


def peers_of(
    task: str, metric: str, times: dict[str, Any], seconds: float, seeds: Sequence[int], ks: Sequence[str] = ()
) -> list[Job]:
    """Every K, or those of ``ks``, at every rate, for the steps that ``seconds`` buy at its own pace."""
    return [
        Job(task, metric, k, scale, seed, int(seconds / step))
        for seed in seeds
        for k, step in times["steps"].items()
        for scale in SCALES
        if step is not None and (not ks or k in ks)
    ]


def mean_of(found: Sequence[dict[str, Any]], rule: str, split: str, seeds: Sequence[int]) -> float | None:
    by = {one["seed"]: one[split][one["metric"]] for one in found if one["rule"] == rule}
    return float(np.mean([by[seed] for seed in seeds])) if set(seeds) <= set(by) else None


def best_peer(found: Sequence[dict[str, Any]], task: str, metric: str) -> str:
    """The peer with the best mean validation score over the two seeds that choose."""
    if (task, metric) in KNOWN:
        return KNOWN[task, metric]
    rules = dict.fromkeys(one["rule"] for one in found if one["rule"] != RUN)
    means = {rule: mean_of(found, rule, "val", CHOOSING) for rule in rules}
    return max((rule for rule in means if means[rule] is not None), key=lambda rule: means[rule] or 0.0)


def contrast(found: Sequence[dict[str, Any]], rule: str, other: str) -> Contrast:
    """The difference of two rules, paired by seed and query."""
    by = {(one["rule"], one["seed"]): one["values"].astype(float) for one in found}
    seeds = [seed for seed in COMPARING if (rule, seed) in by and (other, seed) in by]
    sizes = [len(by[name, seed]) for name in (rule, other) for seed in seeds]
    same = {key: of_queries(values, min(sizes), max(sizes)) for key, values in by.items() if key[0] in (rule, other)}
    return crossed_contrast(np.stack([same[rule, seed] - same[other, seed] for seed in seeds]))


def of_queries(values: NDArray[Any], size: int, queries: int) -> NDArray[Any]:
    """The values of ``size`` of so many queries, of which ``values`` may have more: a main job may evaluate fewer.

    They are the first of one random order, so that fewer of them are always among more.
    """
    return values[np.isin(subset_places(queries, len(values)), subset_places(queries, size))]


def judge(found: Sequence[dict[str, Any]], other: str) -> dict[str, Any]:
    """Whether the main job holds against ``other``, whose gain is that over K = 1."""
    gap, gain = contrast(found, RUN, other), contrast(found, other, BASE).mean
    held = gap.mean >= -max(TOLERANCE * gain, gap.se)
    verdict = "not decided" if gap.se > UNDECIDED * gain else "holds" if held else "does not hold"
    return {"against": other, **asdict(gap), "gain": gain, "verdict": verdict}


def record(paths: Sequence[Path]) -> dict[str, Any]:
    """All that was measured, by task and metric."""
    found = [one for path in paths for one in read(path)]
    cells = {}
    for task, metric in dict.fromkeys((one["task"], one["metric"]) for one in found):
        mine = [one for one in found if (one["task"], one["metric"]) == (task, metric)]
        if all(one["rule"] == RUN for one in mine):
            print(f"{task}, {metric}: left out, since it has no peers yet")
            continue
        best = best_peer(mine, task, metric)
        whole = [
            rule for rule in dict.fromkeys((best, usual(task))) if mean_of(mine, rule, "test", COMPARING) is not None
        ]
        ready = all(mean_of(mine, *need) is not None for need in ((RUN, "test", COMPARING), (BASE, "test", BASE_SEEDS)))
        rules = dict.fromkeys(one["rule"] for one in mine)
        cells[f"{task}, {metric}"] = {
            "best peer": best,
            "choosing, validation": {rule: mean_of(mine, rule, "val", CHOOSING) for rule in rules},
            "comparing, test": {rule: mean_of(mine, rule, "test", COMPARING) for rule in rules},
            "run": [judge(mine, other) for other in whole] if ready else [],
            "runs": [{name: value for name, value in one.items() if name not in ("values", "wins")} for one in mine],
        }
    seeds = {"choosing": CHOOSING, "comparing": COMPARING}
    return {"command": "python -m benchmarks.equal_time", "seeds": seeds, "cells": cells}


def run() -> list[Row]:
    """A row for each contrast of the committed record."""
    if not RECORD.exists():
        raise SystemExit(f"{RECORD}: not measured yet; benchmarks/equal_time.py says how.")
    rows = []
    for name, cell in json.loads(RECORD.read_text())["cells"].items():
        for one in cell["run"]:
            least = None if one["verdict"] == "not decided" else -max(TOLERANCE * one["gain"], one["se"])
            rows.append(Row(f"{name}: run against {one['against']}", one["verdict"], one["mean"], least, "higher", ""))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.equal_time", description=__doc__)
    parser.add_argument("what", choices=("times", "choose", "compare", "run", "record"))
    parser.add_argument("names", nargs="+", help="tasks; for record, files")
    parser.add_argument("--out", type=Path, default=RECORD, help="a folder; for record, the file")
    parser.add_argument("--seconds", type=float, default=60.0, help="wall time of the main job")
    parser.add_argument("--metric", help="instead of the task's own")
    parser.add_argument("--k", nargs="*", default=(), help="only these K, with choose")
    parser.add_argument("--done", type=Path, nargs="*", default=[], help="files of earlier calls")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for all of it")
    asked = parser.parse_args()
    if asked.what == "record":
        found = record([Path(name) for name in asked.names])
        if asked.out.exists():
            found["cells"] = json.loads(asked.out.read_text())["cells"] | found["cells"]
        write_atomically(asked.out, json.dumps(found, indent=1) + "\n")
        return
    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.what == "times":
        for task in asked.names:
            write_atomically(asked.out / f"{task}-times.json", json.dumps(times_of(task), indent=1) + "\n")
        return
    earlier = [one for path in asked.done for one in read(path)]
    jobs: list[Job] = []
    for task in asked.names:
        metric = asked.metric or TASKS[task].metric
        if asked.what == RUN:
            jobs += [Job(task, metric, RUN, 1.0, seed, seconds=asked.seconds) for seed in COMPARING]
            continue
        times = json.loads((asked.out / f"{task}-times.json").read_text())
        seeds = CHOOSING if asked.what == "choose" else COMPARING
        peers = peers_of(task, metric, times, asked.seconds, seeds, asked.k if asked.what == "choose" else ())
        if asked.what == "compare":
            mine = [one for one in earlier if (one["task"], one["metric"]) == (task, metric)]
            kept = (best_peer(mine, task, metric), usual(task), BASE)
            peers = [job for job in peers if job.name in kept and (job.name != BASE or job.seed in BASE_SEEDS)]
        jobs += peers
    known = {(one["task"], one["metric"], one["rule"], one["seed"]) for one in earlier}
    jobs = [job for job in jobs if (job.task, job.metric, job.name, job.seed) not in known]
    done: list[dict[str, Any]] = []
    path = asked.out / f"{'-'.join(asked.names)}-{asked.what}.npz"

    def keep(job: Job, found: list[dict[str, Any]], seconds: float) -> None:
        done.extend(found)
        save(path, done)
        print(f"{seconds:4.0f} s  {job.task} {job.name} {job.seed}: {found[0]['val']}", flush=True)

    work = run_main_job if asked.what == RUN else train
    run_jobs(work, jobs, workers=1 if asked.what == RUN else asked.workers, limit=asked.limit, keep=keep)


if __name__ == "__main__":
    main()

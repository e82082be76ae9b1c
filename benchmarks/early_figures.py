"""Which early figure of a run tells how it will end: ``python -m benchmarks.early_figures record`` prints the record.

``train TASK... --out DIR`` trains four candidates of a race to the end: K for the metric at the recipe's rate, a third
and three times of it, and K = 20. Each has the validation metric and the validation AUC at 25 points of training.
``record FILE...`` writes ``results/early_figures.json``: for each point and each figure, how much of the final metric
would be lost by going on with the candidate that leads there, and with the recipe's own unless another leads by so
many standard errors of the difference.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.online import TASKS
from benchmarks.side_by_side import run_jobs
from negwise.files import write_atomically

RECORD = Path(__file__).parent / "results" / "early_figures.json"
SEEDS = (600, 601)
POINTS = 25
CANDIDATES = (("metric", 1.0), ("metric", 1 / 3), ("metric", 3.0), ("20", 1.0))
SHARES = (0.04, 0.08, 0.12, 0.16, 0.24)
LEADS = (0.0, 1.0, 2.58)


@dataclass(frozen=True)
class Job:
    task: str
    k: str
    scale: float
    seed: int


def train(job: Job) -> dict[str, Any]:
    """The course of a candidate: the share of the steps, the metric, AUC, and both errors."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import fit_task
    from negwise.records import read_run
    from negwise.requests import TrainRequest
    from negwise.tasks import make_task, with_recipe

    task = TASKS[job.task]
    fields = dict(task.fields) if task.file is None else {"data": str(data.need(task.file)), **task.fields}
    fields["eval_every"] = -(-fields["steps"] // POINTS)
    request = with_recipe(TrainRequest(**fields, k=job.k, seed=job.seed, threads=1, evaluate_training=False))
    assert request.learning_rate is not None
    request = replace(request, learning_rate=request.learning_rate * job.scale)
    with tempfile.TemporaryDirectory() as folder:
        result = fit_task(request, make_task(request), folder, show=False)
        log = read_run(folder).of_split("val")
    course = [
        {
            "share": one.step / result.steps,
            **{name: one.value(name) for name in (task.metric, f"{task.metric}_se", "auc", "auc_se")},
        }
        for one in log
    ]
    return {**asdict(job), "metric": task.metric, "test": result.evaluations["test"].value(task.metric), "val": course}


def losses(group: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Test metric lost against the best candidate of the group, by what decides, when, and by how large a lead."""
    metric = group[0]["metric"]
    best = max(one["test"] for one in group)
    found = {}
    for figure in (metric, "auc"):
        for share in SHARES:
            early = [min(one["val"], key=lambda point: abs(point["share"] - share)) for one in group]
            for lead in LEADS:
                errors = [point[f"{figure}_se"] or 0.0 for point in early]
                ahead = [
                    (point[figure] - early[0][figure], at)
                    for at, point in enumerate(early)
                    if at and point[figure] - early[0][figure] > lead * float(np.hypot(errors[0], errors[at]))
                ]
                chosen = max(ahead, default=(0.0, 0))[1]
                name = "auc" if figure == "auc" else "metric"
                found[f"{name} at {share:.0%}, lead {lead:g}"] = best - group[chosen]["test"]
    found["recipe"] = best - group[0]["test"]
    return found


def record(paths: Sequence[Path]) -> dict[str, Any]:
    runs = [one for path in paths for one in json.loads(path.read_text())]
    groups: dict[str, list[dict[str, Any]]] = {}
    for one in runs:
        groups.setdefault(f"{one['task']}, seed {one['seed']}", []).append(one)
    order = {candidate: at for at, candidate in enumerate(CANDIDATES)}
    whole = {
        name: sorted(group, key=lambda one: order[one["k"], one["scale"]])
        for name, group in groups.items()
        if len(group) == len(CANDIDATES)
    }
    lost = {name: losses(group) for name, group in whole.items()}
    rules = next(iter(lost.values()))
    return {
        "command": "python -m benchmarks.early_figures",
        "seeds": SEEDS,
        "mean loss": {rule: float(np.mean([one[rule] for one in lost.values()])) for rule in rules},
        "losses": lost,
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.early_figures", description=__doc__)
    parser.add_argument("what", choices=("train", "record"))
    parser.add_argument("names", nargs="+", help="tasks, as ml-1m or docs:2 for two seeds; for record, files")
    parser.add_argument("--out", type=Path, default=RECORD, help="a folder; for record, the file")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    if asked.what == "record":
        write_atomically(asked.out, json.dumps(record([Path(name) for name in asked.names]), indent=1) + "\n")
        return
    pairs = [(name.partition(":")[0], int(name.partition(":")[2] or 1)) for name in asked.names]
    jobs = [Job(task, *one, seed) for task, seeds in pairs for seed in SEEDS[:seeds] for one in CANDIDATES]
    asked.out.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    path = asked.out / f"early-{'-'.join(task for task, _ in pairs)}.json"

    def keep(job: Job, found: dict[str, Any], seconds: float) -> None:
        kept.append(found)
        write_atomically(path, json.dumps(kept) + "\n")
        print(f"{seconds:4.0f} s  {job} {found['test']:.4f}", flush=True)

    run_jobs(train, jobs, workers=asked.workers, limit=asked.limit, keep=keep)


if __name__ == "__main__":
    main()

"""K without a pilot against the best fixed K: ``python -m benchmarks online`` prints what ``results/online.json`` has.

To measure anew: ``python -m benchmarks.online choose TASK... --out DIR`` trains every rule with two seeds; ``compare``
trains the best fixed K on validation, K = 1 and the rules with five other seeds; ``record DIR`` writes the record.
``--workers`` processes share the machine. The replay trains with the K that online K had at each step, open loop.
Plan: docs/evidence-plan.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.crossed import Contrast, crossed_contrast, fold_contrast
from benchmarks.side_by_side import run_jobs
from benchmarks.table import Row
from negwise.files import write_atomically
from negwise.metrics import Ranks, hit_rate, ndcg
from negwise.metrics.per_query import auc_per_query

RECORD = Path(__file__).parent / "results" / "online.json"
CHOOSING, COMPARING = (100, 101), (200, 201, 202, 203, 204)
"""Seeds; none was used for anything before."""
TOLERANCE, UNDECIDED = 0.03, 0.10
"""A rule may lose this share of the best fixed K's gain over K = 1; with a larger standard error nothing is decided."""
RULES = ("metric", "online:0.2", "online:0.1", "online:0.4", "ramp", "unbounded:0.2")


@dataclass(frozen=True)
class Task:
    """``fields`` of `TrainRequest`; the fixed ``ks``; ``folds``: each seed holds out users of its own."""

    metric: str
    ks: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    file: str | None = None
    folds: bool = False


TASKS = {
    "ml-1m": Task(
        "ndcg@10",
        ("1", "20", "100", "300", "1000", "2000", "all"),
        {"model": "bert4rec", "steps": 2500, "eval_every": 250},
        "ml-1m/ml-1m_sas.txt.xz",
    ),
    "reuters": Task(
        "hit@5",
        ("1", "20", "100", "300", "1000", "2000"),
        {"model": "siamese-transformer", "steps": 800, "eval_every": 100, "skip_bad": 2535},
        "reuters/reuters21578.jsonl.xz",
    ),
    "mind": Task(
        "ndcg@10",
        ("1", "4", "20", "all"),
        {"model": "nrms", "steps": 350, "eval_every": 50, "split": "user", "folds": 5},
        "mind",
        folds=True,
    ),
    "docs": Task(
        "hit@5",
        ("1", "20", "100", "300", "1000"),
        {"model": "siamese-cnn", "steps": 400, "eval_every": 50, "data": "docs"},
    ),
    "clicks": Task(
        "ndcg@10",
        ("1", "4", "20", "all"),
        {"model": "nrms", "steps": 400, "eval_every": 50, "data": "clicks"},
    ),
}


@dataclass(frozen=True)
class Job:
    """One run, and with ``replay`` a second one with the same K open loop."""

    task: str
    rule: str
    seed: int
    replay: bool = False


def train(job: Job) -> list[dict[str, Any]]:
    """The results of a job: scores, K over training, and the metric of each test query."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import fit_task
    from negwise.records import read_run
    from negwise.requests import TrainRequest
    from negwise.schedule import FunctionK
    from negwise.tasks import make_task, max_negatives, query_candidates, with_recipe
    from negwise.training import read_ranks

    task = TASKS[job.task]
    fields = dict(task.fields) if task.file is None else {"data": str(data.need(task.file)), **task.fields}
    request = with_recipe(TrainRequest(**fields, seed=job.seed, threads=1, evaluate_training=False))
    found, path = [], None
    for name in (job.rule, "replay") if job.replay else (job.rule,):
        made = make_task(request)
        most = max_negatives(made.data, request.negatives, request.pool, request.batch_size)
        rule = FunctionK(_along(path)) if path else make_rule(job.rule, task.metric, query_candidates(made.data), most)
        with tempfile.TemporaryDirectory() as folder:
            result = fit_task(request, made, folder, rule=rule, show=False)
            steps, ranks = read_run(folder).steps, read_ranks(Path(folder))
        path = [step.k or 1.0 for step in steps]
        found.append(
            {
                "task": job.task, "rule": name, "seed": job.seed, "steps": result.steps, "seconds": result.seconds,
                "best": None if result.best is None else result.best.step,
                "val": _scores(result.evaluations["val"], task.metric),
                "test": _scores(result.evaluations["test"], task.metric),
                "k": [round(k, 1) for k in path[:: max(1, len(path) // 20)]],
                "reason": steps[-1].k_reason,
                "values": np.nan_to_num(_values(ranks, task.metric)).astype(np.float32),
                "wins": np.nan_to_num(_values(ranks, "auc")).astype(np.float32),
            }
        )  # fmt: skip
    return found


def make_rule(text: str, metric: str, candidates: int, most: int) -> Any:
    """A rule by its name here: "ramp" rises to K for the metric over 40% of training; "unbounded" has no such bound."""
    from negwise.schedule import OnlineK, WarmK, parse_rule
    from negwise.theory.metric_k import k_for_metric

    name, _, r = text.partition(":")
    if name == "unbounded":
        return OnlineK(float(r), metric, None, max_k=most)
    if name == "ramp":
        return WarmK(k_for_metric(metric, candidates, available=most), 0.4)
    return parse_rule(text, metric=metric, candidates=candidates, max_k=most)


def _along(path: list[float]) -> Any:
    return lambda fraction: path[round(fraction * (len(path) - 1))]


def _scores(scores: Any, metric: str) -> dict[str, float]:
    return {name: round(scores.value(name), 5) for name in (metric, "auc")}


def _values(ranks: Ranks, metric: str) -> Any:
    name, _, n = metric.partition("@")
    if name == "auc":
        return auc_per_query(ranks)
    return {"ndcg": ndcg, "hit": hit_rate}[name](ranks, int(n))


def train_all(jobs: Sequence[Job], out: Path, workers: int, limit: float) -> None:
    """Train ``jobs`` side by side; what is done within ``limit`` seconds is in ``out``."""
    done: list[dict[str, Any]] = []

    def keep(job: Job, found: list[dict[str, Any]], seconds: float) -> None:
        done.extend(found)
        save(out, done)
        print(f"{seconds:4.0f} s  {job.task} {job.rule} {job.seed}: {found[0]['val']}", flush=True)

    run_jobs(train, jobs, workers=workers, limit=limit, keep=keep)


def save(out: Path, found: list[dict[str, Any]]) -> None:
    """One file: the results as JSON, and the values of queries."""
    arrays = {f"{name}-{at}": one[name] for at, one in enumerate(found) for name in ("values", "wins")}
    plain = [{name: value for name, value in one.items() if name not in ("values", "wins")} for one in found]
    with out.open("wb") as file:
        np.savez_compressed(file, results=np.array(json.dumps(plain)), **arrays)


def read(path: Path) -> list[dict[str, Any]]:
    """What `save` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        plain = json.loads(str(stored["results"]))
        return [{**one, "values": stored[f"values-{at}"], "wins": stored[f"wins-{at}"]} for at, one in enumerate(plain)]


def best_fixed(found: Sequence[dict[str, Any]], task: str, seeds: Sequence[int] = CHOOSING) -> str:
    """The fixed K with the best mean validation score."""
    means = {k: mean_of(found, task, k, "val", seeds) for k in TASKS[task].ks}
    return max((k for k in means if means[k] is not None), key=lambda k: means[k] or 0.0)


def mean_of(found: Sequence[dict[str, Any]], task: str, rule: str, split: str, seeds: Sequence[int]) -> float | None:
    """The mean score over ``seeds``; None where one is missing."""
    metric = TASKS[task].metric
    scores = {one["seed"]: one[split][metric] for one in found if (one["task"], one["rule"]) == (task, rule)}
    return float(np.mean([scores[seed] for seed in seeds])) if set(seeds) <= set(scores) else None


def contrast(found: Sequence[dict[str, Any]], task: str, rule: str, other: str, values: str = "values") -> Contrast:
    """``rule`` less ``other`` on test, paired by seed and query; in news over folds."""
    by = {(one["rule"], one["seed"]): one[values] for one in found if one["task"] == task and values in one}
    gaps = [by[rule, seed].astype(float) - by[other, seed].astype(float) for seed in COMPARING]
    if TASKS[task].folds:
        return fold_contrast(np.array([gap.mean() for gap in gaps]))
    return crossed_contrast(np.stack(gaps))


def judge(found: Sequence[dict[str, Any]], task: str, rule: str, best: str) -> dict[str, Any]:
    """Whether ``rule`` holds against the best fixed K, and against AUC too."""
    gap, gain = contrast(found, task, rule, best), contrast(found, task, best, "1").mean
    held = gap.mean >= -max(TOLERANCE * gain, gap.se)
    verdict = "not decided" if gap.se > UNDECIDED * gain else "holds" if held else "does not hold"
    return {**asdict(gap), "gain": gain, "verdict": verdict, "auc": asdict(contrast(found, task, rule, best, "wins"))}


def record(paths: Sequence[Path], earlier: dict[str, Any]) -> dict[str, Any]:
    """The record of everything that was trained; what ``earlier``, a record, has and ``paths`` have not is kept."""
    found = [one for path in paths for one in read(path)]
    tasks: dict[str, Any] = {}
    for task in TASKS:
        before = earlier.get(task, {"runs": [], "against the best fixed K": {}})
        mine = [one for one in found if one["task"] == task]
        known = {(one["rule"], one["seed"]) for one in mine}
        mine += [one for one in before["runs"] if (one["rule"], one["seed"]) not in known]
        if not mine:
            continue
        rules = list(dict.fromkeys(one["rule"] for one in mine))
        best = best_fixed(mine, task)
        compared = [rule for rule in rules if mean_of(mine, task, rule, "test", COMPARING) is not None]
        new = [rule for rule in compared if rule != best and _has_values(mine, rule) and _has_values(mine, best)]
        tasks[task] = {
            "metric": TASKS[task].metric,
            "request": TASKS[task].fields,
            "best fixed K": best,
            "choosing, validation": {rule: mean_of(mine, task, rule, "val", CHOOSING) for rule in rules},
            "comparing, test": {rule: mean_of(mine, task, rule, "test", COMPARING) for rule in compared},
            "against the best fixed K": {
                **before["against the best fixed K"],
                **{rule: judge(mine, task, rule, best) for rule in new},
            },
            "runs": [{name: value for name, value in one.items() if name not in ("values", "wins")} for one in mine],
        }
    return {
        "command": "python -m benchmarks.online",
        "seeds": {"choosing": CHOOSING, "comparing": COMPARING},
        "tasks": tasks,
    }


def _has_values(found: Sequence[dict[str, Any]], rule: str) -> bool:
    """Whether every comparing seed of ``rule`` comes with the metric of its queries."""
    return {one["seed"] for one in found if one["rule"] == rule and "values" in one} >= set(COMPARING)


def recorded() -> dict[str, Any]:
    """The tasks of the committed record."""
    return dict(json.loads(RECORD.read_text())["tasks"]) if RECORD.exists() else {}


def run() -> list[Row]:
    """A row for each rule and task of the committed record: the difference, over what it may lose."""
    rows = []
    for name, task in recorded().items():
        for rule, found in task["against the best fixed K"].items():
            least = -max(TOLERANCE * found["gain"], found["se"])
            bar = None if found["verdict"] == "not decided" or rule.isdecimal() else least
            work = f"{name}, {rule} against K = {task['best fixed K']}"
            rows.append(
                Row(work, f"{task['metric']}, five seeds: {found['verdict']}", found["mean"], bar, "higher", "")
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online", description=__doc__)
    parser.add_argument("what", choices=("choose", "compare", "record"))
    parser.add_argument("names", nargs="+", help="tasks; for record, files")
    parser.add_argument("--out", type=Path, default=RECORD, help="a folder; for record, the file")
    parser.add_argument(
        "--done", type=Path, nargs="*", default=[], help="files of earlier calls: what they have is kept"
    )
    parser.add_argument("--rules", default=",".join(RULES), help="rules beside the fixed K")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    rules = [rule for rule in asked.rules.split(",") if rule]
    if asked.what == "record":
        whole = record([Path(name) for name in asked.names], recorded())
        write_atomically(asked.out, json.dumps(whole, indent=1) + "\n")
        return
    done = {(one["task"], one["rule"], one["seed"]) for path in asked.done for one in read(path)}
    jobs = []
    for task in asked.names:
        if asked.what == "choose":
            jobs += [Job(task, rule, seed) for seed in CHOOSING for rule in (*TASKS[task].ks[::-1], *rules)]
        else:
            earlier = [one for path in asked.done for one in read(path)]
            best = best_fixed([*recorded().get(task, {"runs": []})["runs"], *earlier], task)
            arms = dict.fromkeys((best, "1", *rules))
            jobs += [Job(task, rule, seed, rule.startswith("online")) for seed in COMPARING for rule in arms]
    jobs = [job for job in jobs if (job.task, job.rule, job.seed) not in done]
    asked.out.mkdir(parents=True, exist_ok=True)
    train_all(jobs, asked.out / f"{'-'.join(asked.names)}-{asked.what}.npz", asked.workers, asked.limit)


if __name__ == "__main__":
    main()

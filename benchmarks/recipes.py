"""Recipes against what came before them, in the same time: ``python -m benchmarks recipes`` prints the record.

To measure anew: ``python -m benchmarks.recipes times --device cuda --out DIR`` times a step of each arm alone on the
machine; ``train`` trains every arm for the steps that so many ``--seconds`` buy at that pace, three seeds, and two more
learning rates with one seed; ``record DIR...`` writes ``results/recipes.json``. All arms have the default K, the metric
of the recipe, and the weights of the evaluation with the best validation value.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.side_by_side import run_jobs
from benchmarks.table import Row
from negwise.files import write_atomically

RECORD = Path(__file__).parent / "results" / "recipes.json"
SEEDS = (300, 301, 302)
MODELS = ("bert4rec", "siamese-transformer", "siamese-cnn", "siamese-lstm", "nrms", "naml", "lstur")
ARMS = ("before", "recipe", "lower rate", "higher rate")
RATES = {"lower rate": 1 / 3, "higher rate": 3.0}
_CONSTANT = {"warmup": 0, "decay": 0.0, "weight_decay": 0.0}
_POOL = {"negatives": "pool", "pool": 512}
_TEXT = {"title_words": 20, "body_words": 60, "batch_size": 128, "learning_rate": 9e-3}
_NEWS = {"title_words": 20, "history": 30, "batch_size": 64, "learning_rate": 3e-4}
_SMALL_CNN = {"temperature": 0.1, "hidden": 128, "embedding": 128, "pooling": 64, "dropout": 0.0}
_BEFORE: dict[str, dict[str, dict[str, Any]]] = {
    "cpu": {
        "bert4rec": {"batch_size": 128, "learning_rate": 1e-3, "history": 50},
        "siamese-transformer": {**_TEXT, **_POOL, "settings": {"temperature": 0.1}},
        "siamese-cnn": {**_TEXT, **_POOL, "settings": _SMALL_CNN},
        "siamese-lstm": {**_TEXT, **_POOL, "settings": {"temperature": 0.1}},
        "nrms": {**_NEWS, "settings": {"heads": 8, "embedding": 128, "pooling": 64}},
        "naml": _NEWS,
        "lstur": _NEWS,
    },
    "cuda": {
        "bert4rec": {"batch_size": 256, "learning_rate": 1e-3, "settings": {"heads": 2}},
        **{
            name: {"batch_size": 128, "learning_rate": 3e-4, **_POOL, "settings": {"temperature": 0.1}}
            for name in ("siamese-transformer", "siamese-cnn", "siamese-lstm")
        },
        **{name: {"batch_size": 128, "learning_rate": 3e-4} for name in ("nrms", "naml", "lstur")},
    },
}
"""The settings of version 0.1.0: a constant learning rate, and a pool of 512 texts."""


@dataclass(frozen=True)
class Arm:
    """A model trained in one way, for ``steps``; none while it is timed."""

    device: str
    model: str
    arm: str
    seed: int = SEEDS[0]
    steps: int | None = None


def request_of(arm: Arm) -> Any:
    """The request of an arm, with a value for everything."""
    from negwise.requests import TrainRequest
    from negwise.tasks import with_recipe

    fields = _data_of(arm)
    before: dict[str, Any] = {**_CONSTANT, **_BEFORE[arm.device][arm.model]} if arm.arm == "before" else {}
    steps: dict[str, Any] = {} if arm.steps is None else {"steps": arm.steps, "eval_every": -(-arm.steps // 8)}
    request = with_recipe(
        TrainRequest(
            **fields, **before, **steps, model=arm.model, device=arm.device, seed=arm.seed, threads=1,
            evaluate_training=False,
        )
    )  # fmt: skip
    assert request.learning_rate is not None
    return replace(request, learning_rate=request.learning_rate * RATES.get(arm.arm, 1.0))


def _data_of(arm: Arm) -> dict[str, Any]:
    if arm.model == "bert4rec":
        return {"data": str(data.need("ml-1m/ml-1m_sas.txt.xz"))}
    if not arm.model.startswith("siamese"):
        return {"data": str(data.need("mind")), "split": "user"}
    if arm.device == "cpu":
        return {"data": "docs"}
    return {"data": str(data.need("reuters/reuters21578.jsonl.xz")), "skip_bad": 2535}


def time_arm(arm: Arm) -> dict[str, Any]:
    """Seconds of a step with the largest K that the rule is likely to come to."""
    warnings.filterwarnings("ignore")
    from negwise.jobs.step_timing import time_steps

    request = request_of(arm)
    times = time_steps(request, None, 20 if arm.device == "cuda" else 6)
    return {
        "model": arm.model, "arm": arm.arm, "step": times.step, "k": times.k, "evaluation": times.evaluation,
        "most": request.epochs * times.epoch,
    }  # fmt: skip


def train_arm(arm: Arm) -> dict[str, Any]:
    """What an arm came to, by the metric of the recipe."""
    warnings.filterwarnings("ignore")
    from negwise.jobs import fit_task
    from negwise.tasks import make_task

    request = request_of(arm)
    with tempfile.TemporaryDirectory() as folder:
        result = fit_task(request, make_task(request), folder, show=False)
    found = {name: round(result.evaluations[name].value(request.metric) or 0.0, 5) for name in ("val", "test")}
    best = None if result.best is None else result.best.step
    return {
        **asdict(arm), "metric": request.metric, "rate": request.learning_rate, **found, "best": best,
        "seconds": result.seconds,
    }  # fmt: skip


def arms_of(device: str, models: tuple[str, ...], times: list[dict[str, Any]], seconds: float) -> list[Arm]:
    """Every arm with the steps that ``seconds`` buy; those of a recipe are no more than its epochs."""
    timed = {(one["model"], one["arm"]): one for one in times}
    found = []
    for arm, seeds in (("recipe", SEEDS), ("before", SEEDS), ("lower rate", SEEDS[:1]), ("higher rate", SEEDS[:1])):
        for model in models:
            pace = timed[model, "before" if arm == "before" else "recipe"]
            steps = int(seconds / pace["step"])
            found += [
                Arm(device, model, arm, seed, steps if arm == "before" else min(steps, pace["most"])) for seed in seeds
            ]
    return found


def record(folders: list[Path]) -> dict[str, Any]:
    """All that was measured, and the mean difference between the recipe and what came before on test."""
    found: dict[str, Any] = {}
    for device in ("cuda", "cpu"):
        read = {
            name: [
                one
                for folder in folders
                if (path := folder / f"{device}-{name}.json").exists()
                for one in json.loads(path.read_text())
            ]
            for name in ("times", "runs")
        }
        if read["runs"]:
            found[device] = {"differences": differences(read["runs"]), **read}
    return {"command": "python -m benchmarks.recipes", "seeds": SEEDS, **found}


def differences(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """By model: mean test value before and with the recipe, their difference paired by seed, and its standard error."""
    found = {}
    for model in dict.fromkeys(one["model"] for one in runs):
        by = {(one["arm"], one["seed"]): one for one in runs if one["model"] == model}
        seeds = [seed for seed in SEEDS if ("before", seed) in by and ("recipe", seed) in by]
        if len(seeds) < 2:
            continue
        before, recipe = (np.array([by[arm, seed]["test"] for seed in seeds]) for arm in ("before", "recipe"))
        gaps = recipe - before
        found[model] = {
            "metric": by["recipe", seeds[0]]["metric"],
            "before": float(before.mean()),
            "recipe": float(recipe.mean()),
            "difference": float(gaps.mean()),
            "se": float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
            "seeds": len(seeds),
            "validation by rate": {
                arm: by[arm, seeds[0]]["val"]
                for arm in ("lower rate", "recipe", "higher rate")
                if (arm, seeds[0]) in by
            },
        }
    return found


def run() -> list[Row]:
    """A row for each model and device of the committed record."""
    kept = json.loads(RECORD.read_text())
    return [
        Row(f"{model}, {device}", f"{one['metric']}, recipe less before", one["difference"], 0.0, "higher", "")
        for device in ("cuda", "cpu")
        for model, one in kept.get(device, {}).get("differences", {}).items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recipes", description=__doc__)
    parser.add_argument("what", choices=("times", "train", "record"))
    parser.add_argument("names", nargs="*", help="models (default: all seven); for record, folders")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=RECORD, help="a folder; for record, the file")
    parser.add_argument("--seconds", type=float, default=45.0, help="of training an arm, alone on the machine")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds for all of it")
    asked = parser.parse_args()
    if asked.what == "record":
        write_atomically(asked.out, json.dumps(record([Path(name) for name in asked.names]), indent=1) + "\n")
        return
    models = tuple(asked.names) or MODELS
    asked.out.mkdir(parents=True, exist_ok=True)
    kept: list[dict[str, Any]] = []
    path = asked.out / f"{asked.device}-{'times' if asked.what == 'times' else 'runs'}.json"

    def keep(_: Arm, found: dict[str, Any], seconds: float) -> None:
        kept.append(found)
        write_atomically(path, json.dumps(kept, indent=1) + "\n")
        print(f"{seconds:4.0f} s  {found}", flush=True)

    if asked.what == "times":
        arms = [Arm(asked.device, model, arm) for model in models for arm in ARMS[:2]]
        run_jobs(time_arm, arms, workers=1, limit=asked.limit, keep=keep)
        return
    times = json.loads((asked.out / f"{asked.device}-times.json").read_text())
    arms = [arm for arm in arms_of(asked.device, models, times, asked.seconds) if arm.arm in asked.arms.split(",")]
    run_jobs(train_arm, arms, workers=asked.workers, limit=asked.limit, keep=keep)


if __name__ == "__main__":
    main()

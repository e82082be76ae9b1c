"""What came out of a grid, in plain values: every seed of every arm, and differences with their error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from negwise.jobs.arms import Arm
from negwise.jobs.crew import error_of
from negwise.jobs.grid import Grid
from negwise.theory.estimate import Estimate
from negwise.theory.separation import separation
from negwise.training.run_folder import RESULT, read_json

BASE = "1"
"""The rule that the others are compared with."""
FEW = 5
"""Seeds below which nothing is claimed."""
FURTHER = 1.1
"""A K = 1 whose validation separation is so many times the pilot's has learnt more than the pilot did."""


def results_of(grid: Grid, *, kind: str, metrics: Sequence[str], pilot: Mapping[str, Any] | None) -> dict[str, Any]:
    """The content of ``results.json``, of a grid that may be half done."""
    arms = [_arm(grid, arm) for arm in grid.arms]
    chosen = _chosen(arms)
    first = None if chosen is None else next(seed for seed in chosen["seeds"] if seed["state"] == "done")
    base = next((arm for arm in arms if arm["rule"] == BASE), None)
    others = [arm for arm in arms if base is not None and arm is not base]
    return {
        "kind": kind,
        "pilot": None if pilot is None else dict(pilot),
        "arms": arms,
        "chosen": None if chosen is None else chosen["name"],
        "model": None if first is None else first["run"],
        "metrics": list(metrics),
        "differences": [_difference(arm, base, name) for arm in others for name in metrics if base is not None],
    }


def value_of(seed: Mapping[str, Any], metric: str, split: str = "test") -> float | None:
    """A metric of a run that is done; None where there is none."""
    record = seed.get(split)
    if record is None:
        return None
    return record["auc"] if metric == "auc" else record["metrics"].get(metric)


def mean_of(arm: Mapping[str, Any], metric: str, split: str = "test") -> tuple[float | None, float | None, int]:
    """Mean over seeds, its standard error (None with one seed), and how many seeds there are."""
    values = [value for seed in arm["seeds"] if (value := value_of(seed, metric, split)) is not None]
    if not values:
        return None, None, 0
    error = float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else None
    return float(np.mean(values)), error, len(values)


def _arm(grid: Grid, arm: Arm) -> dict[str, Any]:
    choice, tried = grid.choice(arm), grid.tried(arm)
    failed = [f"learning rate {row['learning_rate']:g} failed: {row['error']}" for row in tried if row["error"]]
    unsettled = "; ".join(failed) if choice is None and failed else None
    return {
        "name": arm.rule,
        "rule": arm.rule,
        "k": arm.k,
        "role": arm.role,
        "uses_pilot": arm.uses_pilot,
        "learning_rate": None if choice is None else choice["learning_rate"],
        "tuning": tried,
        "seeds": [_seed(grid, arm, seed, unsettled) for seed in grid.seeds],
    }


def _seed(grid: Grid, arm: Arm, seed: int, unsettled: str | None) -> dict[str, Any]:
    """One seed of an arm; ``unsettled`` says why the arm has no learning rate, where that is so."""
    folder = grid.folder(arm, seed)
    result = read_json(folder / RESULT) if (folder / RESULT).exists() else None
    error = None if result is not None else unsettled or error_of(folder)
    state = "done" if result is not None else "waiting" if error is None else "failed"
    found: dict[str, Any] = {"seed": seed, "run": _name(folder, grid.out), "state": state, "error": error}
    if result is None:
        return found
    best = result["best"]
    return found | {
        "steps": result["steps"],
        "seconds": result["seconds"],
        "best_step": None if best is None else best["step"],
        "val": result["evaluations"].get("val"),
        "test": result["evaluations"].get("test"),
        "recommended": result.get("recommended"),
    }


def _name(folder: Path, out: Path) -> str:
    return folder.relative_to(out).as_posix()


def _chosen(arms: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The arm with the best validation AUC; of equal ones the first, which is the schedule."""
    scored = [(mean_of(arm, "auc", "val")[0], arm) for arm in arms]
    done = [(auc, arm) for auc, arm in scored if auc is not None]
    return max(done, key=lambda pair: pair[0])[1] if done else None


def _difference(arm: Mapping[str, Any], base: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Mean over seeds of (arm - base), paired by seed, with its 95% interval by Student's t."""
    theirs = {seed["seed"]: value_of(seed, metric) for seed in base["seeds"]}
    gaps = [
        value - other
        for seed in arm["seeds"]
        if (value := value_of(seed, metric)) is not None and (other := theirs.get(seed["seed"])) is not None
    ]
    found: dict[str, Any] = {"arm": arm["name"], "against": base["name"], "metric": metric, "seeds": len(gaps)}
    mean = float(np.mean(gaps)) if gaps else None
    if mean is None or len(gaps) < 2:
        return found | {"mean": mean, "se": None, "low": None, "high": None}
    error = float(np.std(gaps, ddof=1) / math.sqrt(len(gaps)))
    reach = float(stats.t.ppf(0.975, len(gaps) - 1)) * error
    return found | {"mean": mean, "se": error, "low": mean - reach, "high": mean + reach}


def caveats_of(results: Mapping[str, Any], estimate: Estimate | None) -> list[str]:
    """What a reader of these results should keep in mind, a sentence each."""
    arms = results["arms"]
    seeds = max((mean_of(arm, "auc")[2] for arm in arms), default=0)
    found = []
    if seeds == 1:
        found.append("One seed: differences between arms have no error bar. Pass --seeds 5 for one.")
    elif 0 < seeds < FEW:
        found.append(f"{seeds} seeds: the intervals are wide, and a claim about quality wants {FEW}.")
    failed = [
        f"{arm['name']} seed {seed['seed']}" for arm in arms for seed in arm["seeds"] if seed["state"] == "failed"
    ]
    if failed:
        found.append(f"Failed: {', '.join(failed)}. The same command again tries them once more.")
    found += [
        f"Learning rate {row['learning_rate']:g} could not be trained for {arm['name']}: {row['error']}"
        for arm in arms
        for row in arm["tuning"]
        if row.get("error") and arm["learning_rate"] is not None
    ]
    edges = [arm["name"] for arm in arms if len(arm["tuning"]) > 1 and _at_edge(arm)]
    if edges:
        found.append(
            f"The learning rate chosen for {', '.join(edges)} is the smallest or largest that was tried: a wider "
            "choice may change the comparison. --learning-rate moves it."
        )
    untrained = [arm["name"] for arm in arms if _untrained(arm)]
    if untrained:
        found.append(
            f"Training did not raise the validation AUC of {', '.join(untrained)}: the weights kept are those before "
            "it. Train longer (--steps), or at other learning rates."
        )
    if estimate is not None:
        found += _learnt_less(results) + _disagreement(results, estimate)
        found.append(
            "K* is read from AUC. Metrics of the top n want more negatives than AUC does: compare both columns."
        )
    return found


def _at_edge(arm: Mapping[str, Any]) -> bool:
    """Whether the rate chosen is the smallest or largest; not where all of them came to the same."""
    rates = [row["learning_rate"] for row in arm["tuning"]]
    scores = {row.get("val_auc") for row in arm["tuning"]}
    return arm["learning_rate"] in (min(rates), max(rates)) and (len(scores) > 1 or scores == {None})


def _untrained(arm: Mapping[str, Any]) -> bool:
    steps = [seed.get("best_step") for seed in arm["seeds"] if seed["state"] == "done"]
    return bool(steps) and all(step == 0 for step in steps)


def _learnt_less(results: Mapping[str, Any]) -> list[str]:
    """Where K = 1, with a learning rate of its own, came further than the pilot that the estimate was read from."""
    base = next((arm for arm in results["arms"] if arm["rule"] == BASE), None)
    pilot = (results["pilot"] or {}).get("val_auc")
    reached = None if base is None else mean_of(base, "auc", "val")[0]
    if base is None or pilot is None or reached is None or separation(reached) <= FURTHER * separation(pilot):
        return []
    return [
        f"K = 1 reached a validation AUC of {reached:.3f} at learning rate {base['learning_rate']:g}, the pilot "
        f"{pilot:.3f}: K* was read from a model that had learnt less. A pilot at that rate (--learning-rate) may give "
        "another."
    ]


def _disagreement(results: Mapping[str, Any], estimate: Estimate) -> list[str]:
    """Where the best K that was trained lies outside what the estimate calls as good."""
    chosen = next((arm for arm in results["arms"] if arm["name"] == results["chosen"]), None)
    if chosen is None or chosen["role"] != "extra" or not estimate.determined or estimate.as_good(chosen["k"]):
        return []
    low, high = estimate.flat
    if estimate.basis == "lower bound" and chosen["k"] > low:
        return [f"K = {chosen['name']} was best on validation; the estimate, {estimate.k_int}, was a lower bound."]
    good = f"{low:g} and more" if high is None else f"{low:g} to {high:g}"
    return [
        f"K = {chosen['name']} was best on validation, and the estimate has {good} as good: here the two disagree, and "
        "what was measured counts."
    ]

"""The record of a task: everything the page says follows from it. ``<task>.json`` and ``<task>.safetensors``.

The second file has the standing of every test query in every run, so that arms are compared query by query:
``sizes/<seed>`` and ``positives/<seed>`` of the queries, and for each arm ``above/<rule>/<seed>``, with
``tied/<rule>/<seed>`` where a positive ties with another candidate (`negwise.metrics.Ranks`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from evidence.protocol import Protocol, arms_of
from evidence.provenance import code
from evidence.scores import score_histogram
from negwise import InputError, NegwiseError
from negwise.files import read_json, write_atomically
from negwise.jobs import Arm, machine, versions
from negwise.metrics import Ranks
from negwise.records import CONFIG, RESULT, RunConfig, RunLog, Scores, encode, read_record, read_result, read_run
from negwise.training import read_ranks

Record = dict[str, Any]
DIGITS = 6
PACE = "pace.json"
"""How long a step takes at each K, in the folder of a task whose seconds were measured."""


def collect(protocol: Protocol, device: str) -> tuple[Record, dict[str, Any]]:
    """The record and the standings of whatever is done; the pilot has to be."""
    arms = arms_of(protocol)
    first = protocol.folder("1", protocol.seeds[0])
    estimates = {}
    for seed in protocol.seeds:
        try:
            estimates[str(seed)] = _estimate(protocol.estimate_of_seed(seed).to_dict())
        except NegwiseError:  # not there yet
            continue
    record = {
        "task": protocol.task.name,
        "of": protocol.task.of,
        "variant": protocol.task.variant,
        "title": protocol.task.title,
        "code": code(),
        "versions": versions(),
        "machine": machine(device),
        "data": {"name": Path(protocol.base.data).name, "digest": read_json(first / CONFIG)["data_digest"]},
        "settings": {name: value for name, value in asdict(protocol.base).items() if name not in ("data", "vectors")}
        | {"vectors": protocol.base.vectors is not None},
        "steps": protocol.base.steps,
        "seeds": list(protocol.seeds),
        "ks": list(protocol.ks),
        "max_k": protocol.task.max_k,
        "top_n": protocol.task.top_n,
        "k_star": protocol.k_star,
        "k_best": protocol.k_best,
        "estimate": protocol.estimate.to_dict(),
        "estimates": estimates,
        "tuning": {str(k): _tuning(protocol, k) for k in protocol.tuned_ks},
        "arms": [_arm(protocol, arm) for arm in arms],
        "scores": score_histogram(first),
    }
    return with_pace(rounded(record), protocol.out), standings(protocol, arms)


def write(record: Mapping[str, Any], ranks: Mapping[str, Any], folder: Path) -> list[Path]:
    """Both files of a task."""
    return [
        write_record(record, folder),
        write_atomically(folder / f"{record['task']}.safetensors", save(dict(ranks))),
    ]


def write_record(record: Mapping[str, Any], folder: Path) -> Path:
    """The first of them."""
    text = json.dumps(record, allow_nan=False, separators=(",", ":")) + "\n"
    return write_atomically(folder / f"{record['task']}.json", text)


def with_pace(record: Record, folder: Path) -> Record:
    """The record with the pace that was timed in its folder, where it was."""
    path = folder / PACE
    return record | {"pace": rounded(read_json(path))} if path.exists() else record


def read(folder: Path, task: str) -> Record:
    path = folder / f"{task}.json"
    if not path.exists():
        raise InputError(f"{path}: no such record. Make it with: python -m evidence")
    found: Record = read_json(path)
    if found.get("task") != task:
        raise InputError(f"{path}: expected the record {task!r}, found {found.get('task')!r}. Give it its own name.")
    return found


def read_only(folder: Path) -> Record:
    """The one record of a folder in which `reproduce` ran a task."""
    names = [path.stem for path in sorted(folder.glob("*.json")) if path.name != PACE]
    found = read(folder, names[0]) if len(names) == 1 else {}
    if "arms" not in found:
        there = ", ".join(f"{name}.json" for name in names) or "none"
        raise InputError(
            f"{folder}: expected the folder of one task with its record and its runs; records there: {there}. "
            "Pass the --out of: python -m evidence news|matching|items"
        )
    return found


def ranks_of(folder: Path, task: str) -> dict[tuple[str, int], Ranks]:
    """The standings of every run, by rule and seed."""
    stored = load((folder / f"{task}.safetensors").read_bytes())
    found = {}
    for name, above in stored.items():
        kind, *rest = name.split("/")
        if kind != "above":
            continue
        rule, seed = rest
        tied = stored.get(f"tied/{rule}/{seed}", np.ones_like(above))
        parts = (above, tied, stored[f"positives/{seed}"], stored[f"sizes/{seed}"])
        found[rule, int(seed)] = Ranks(*(part.astype(np.int64) for part in parts))
    return found


def standings(protocol: Protocol, arms: list[Arm]) -> dict[str, Any]:
    """The second file, as small as whole numbers will have it."""
    found: dict[str, Any] = {}
    for arm in arms:
        for seed in protocol.seeds:
            folder = protocol.folder(arm.rule, seed)
            if not (folder / RESULT).exists():
                continue
            ranks = read_ranks(folder)
            shared = {f"sizes/{seed}": ranks.sizes, f"positives/{seed}": ranks.positives}
            for name, values in shared.items():
                if name in found and not np.array_equal(found[name], values):
                    raise NegwiseError(f"{folder}: its test queries are not those of the other arms with seed {seed}.")
            found |= shared | {f"above/{arm.rule}/{seed}": ranks.above}
            if (ranks.tied > 1).any():
                found[f"tied/{arm.rule}/{seed}"] = ranks.tied
    return {name: values.astype(np.min_scalar_type(int(values.max(initial=0)))) for name, values in found.items()}


def rounded(value: Any) -> Any:
    """Numbers to six digits: more is noise, and doubles the file."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list | tuple) else value


def _estimate(found: Record) -> Record:
    kept = ("k", "k_int", "flat", "interval", "margin", "verdict", "basis", "label_separation", "horizon", "k_by_lam")
    return {name: found[name] for name in kept}


def _tuning(protocol: Protocol, k: int) -> Record | None:
    grid = protocol.tuned(k)
    choice = grid.choice(grid.arms[0])
    if choice is None:
        return None
    kept = ("learning_rate", "state", "val_auc", "error")
    tried = [{name: getattr(row, name) for name in kept} for row in choice.tried]
    return {"learning_rate": choice.learning_rate, "tried": tried}


def _arm(protocol: Protocol, arm: Arm) -> Record:
    runs = [_run(protocol.folder(arm.rule, seed), seed) for seed in protocol.seeds]
    return {"rule": arm.rule, "k": arm.k, "role": arm.role, "seeds": [run for run in runs if run is not None]}


def _run(folder: Path, seed: int) -> Record | None:
    result = read_result(folder)
    if result is None:
        return None
    config, log = read_record(RunConfig, folder / CONFIG), read_run(folder)
    assert result.best is not None
    return {
        "seed": seed,
        "learning_rate": config.run["learning_rate"],
        "seconds": result.seconds,
        "best_step": result.best.step,
        "val": _scores(result.evaluations["val"]),
        "test": _scores(result.evaluations["test"]),
        "recommended": None if result.recommended is None else encode(result.recommended),
        "curve": {split: _curve(log, split) for split in ("train", "val") if log.of_split(split)},
    }


def _scores(scores: Scores) -> Record:
    return {"auc": scores.auc, "auc_se": scores.auc_se, **scores.metrics}


def _curve(log: RunLog, split: str) -> Record:
    """Step, seconds, AUC, its standard error and the metrics of the top at each evaluation; pairs, the same at all."""
    seconds = {record.step: record.time for record in log.steps}
    evals = log.of_split(split)
    tops = [name for name in evals[0].metrics if "@" in name]
    return {
        "step": [record.step for record in evals],
        "seconds": [seconds.get(int(record.step), 0.0) for record in evals],
        "auc": [record.auc for record in evals],
        "auc_se": [record.auc_se for record in evals],
        "pairs": evals[0].pairs,
        **{name: [record.metrics[name] for record in evals] for name in tops},
    }

"""The folder of one run: ``config.json``, ``run.jsonl`` and, when it has ended, ``result.json``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from pathlib import Path

from negwise.errors import InputError
from negwise.records import NAME, Run, read_run
from negwise.report.fields import Fields, read_object
from negwise.report.from_log import estimate_of
from negwise.report.subject import Arm, Recommended, Scores, Subject, Trial
from negwise.theory.estimate import Estimate

CONFIG, RESULT = "config.json", "result.json"
_SHOWN_FIRST = ("hit@5", "ndcg@10", "hit@10", "ndcg@5", "mrr")


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and (folder / NAME).is_file()


def run_subject(folder: Path) -> Subject:
    """A single run as the subject of a page; with K = 1 it is a pilot, and gives an estimate."""
    config = read_object(folder / CONFIG)
    run = config.needed_inside("run")
    rule = run.text("k") or "?"
    trial = trial_of(folder)
    arm = Arm(f"K = {rule}", rule, as_k(rule), None, (trial,), learning_rate=run.number("learning_rate"))
    done = trial.state == "done"
    found, caveats = _estimate(folder, trial) if done and as_k(rule) == 1.0 else (None, ())
    training = config.inside("training")
    return Subject(
        path=folder,
        kind="train",
        arms=(arm,),
        metrics=shown_metrics([trial]),
        estimates=() if found is None else ((folder.name, found),),
        chosen=arm.name,
        model=folder if done else None,
        caveats=caveats,
        missing=() if done else (f"The run has not ended: it has no {RESULT}. The same command again goes on.",),
        facts={
            "Run": run.values,
            "Training": {} if training is None else training.values,
            "Data": {name: config.values[name] for name in ("split", "data_digest") if name in config.values},
            "Machine": _machine(folder),
        },
    )


def _estimate(folder: Path, trial: Trial) -> tuple[Estimate | None, tuple[str, ...]]:
    """The estimate of a run with K = 1, or why there is none."""
    if trial.log is None or not trial.log.of_split("val"):
        return None, ()
    try:
        return estimate_of(folder / NAME), ()
    except InputError as error:
        return None, (f"No estimate: {error}",)


def trial_of(folder: Path, seed: int | None = None) -> Trial:
    """A trial from the records in its folder alone."""
    log = log_of(folder)
    if seed is None:
        config = read_object(folder / CONFIG).inside("run") if (folder / CONFIG).is_file() else None
        seed = int((config.number("seed") if config is not None else None) or 0)
    if not (folder / RESULT).is_file():
        return Trial(seed, folder, "waiting", log=log)
    result = read_object(folder / RESULT)
    scores, best = result.needed_inside("evaluations"), result.inside("best")
    return Trial(
        seed=seed,
        folder=folder,
        state="done",
        steps=result.number("steps"),
        seconds=result.number("seconds"),
        best_step=None if best is None else best.number("step"),
        val=scores_of(scores.inside("val")),
        test=scores_of(scores.inside("test")),
        recommended=recommended_of(result.inside("recommended")),
        log=log,
    )


def log_of(folder: Path) -> Run | None:
    """The run log with its numbers checked; None where there is none."""
    if not (folder / NAME).is_file():
        return None
    log = read_run(folder)
    for record in log.steps:
        _check(folder, record, ("step", "time", "k", "k_used", "loss", "log_k1", "mi_bound"))
    for record in log.evals:
        _check(folder, record, ("step", "auc", "auc_se"))
        metrics = record.get("metrics", {})
        if not isinstance(metrics, dict):
            raise InputError(f"{folder / NAME}: the evaluation of step {record['step']} has no metrics by name.")
        _check(folder, {**metrics, "kind": "eval", "step": record["step"]}, tuple(metrics))
    _check_order(folder, [record["step"] for record in log.steps])
    return log


def scores_of(record: Fields | None) -> Scores | None:
    if record is None:
        return None
    metrics = record.inside("metrics")
    return Scores(
        record.number("auc"),
        record.number("auc_se"),
        record.number("queries"),
        {} if metrics is None else metrics.numbers(),
    )


def recommended_of(record: Fields | None) -> Recommended | None:
    if record is None:
        return None
    names = ("n", "queries", "coverage", "popularity", "positives_popularity", "catalogue")
    return Recommended(*(record.number(name) for name in names))


def as_k(rule: str) -> float | None:
    """The K of a rule's text: its number, or the peak of ``ans:20`` and ``warm:20``."""
    try:
        value = float(rule.split(":")[-1])
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def shown_metrics(trials: Iterable[Trial]) -> tuple[str, ...]:
    """AUC, and a top-n metric that every trial with scores has."""
    held = [set(scores.metrics) for trial in trials if (scores := trial.test or trial.val) is not None]
    shared = set.intersection(*held) if held else set()
    first = [name for name in _SHOWN_FIRST if name in shared]
    return ("auc", *first[:2])


def _check(folder: Path, record: dict[str, object], names: tuple[str, ...]) -> None:
    for name in names:
        value = record.get(name)
        bad = isinstance(value, bool) or not isinstance(value, int | float | None)
        if bad or (name == "step" and value is None) or (isinstance(value, float) and not math.isfinite(value)):
            raise InputError(
                f"{folder / NAME}: the {record['kind']} record of step {record['step']!r} has {name} = {value!r}, "
                "expected a number or null. Delete the line."
            )


def _check_order(folder: Path, steps: list[float]) -> None:
    for before, after in itertools.pairwise(steps):
        if after <= before:
            raise InputError(
                f"{folder / NAME}: step {after} comes after step {before} with no resume between them. "
                "Keep one run per file."
            )


def _machine(folder: Path) -> dict[str, object]:
    if not (folder / RESULT).is_file():
        return {}
    result = read_object(folder / RESULT).values
    return {
        name: result[name] for name in ("device", "precision", "threads", "processes", "parameters") if name in result
    }

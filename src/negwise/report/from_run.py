"""`ReportData` from the folder of one run: ``config.json``, ``run.jsonl`` and, at its end, ``result.json``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from negwise.errors import InputError
from negwise.records import (
    CONFIG,
    LOG,
    RESULT,
    RunConfig,
    RunLog,
    RunResult,
    decode,
    read_record,
    read_result,
    read_run,
)
from negwise.report.from_log import estimate_from_log_file
from negwise.report.report_data import ArmRuns, ReportData, SeedRun
from negwise.schedule import check_rule
from negwise.schedule.typed_rules import needs_data
from negwise.theory.estimate import Estimate

NOT_ENDED = f"The run has not ended: it has no {RESULT}. The same command resumes it."
_PREFERRED_METRICS = ("hit@5", "ndcg@10", "hit@10", "ndcg@5", "mrr")


@dataclass(frozen=True)
class _RequestFields:
    """The fields of the request in ``config.json`` that a page needs."""

    k: str = "?"
    seed: int = 0
    learning_rate: float | None = None


def is_run(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and (folder / LOG).is_file()


def run_report_data(folder: Path) -> ReportData:
    """The data for the page of one run. A run with K = 1 is a pilot, and gives an estimate."""
    arm = arm_from_runs([folder])
    (run,) = arm.seeds
    config, result = read_record(RunConfig, folder / CONFIG), read_result(folder)
    estimate, caveats = _estimate(folder, run) if result is not None and arm.k == 1.0 else (None, ())
    name = f"K = {arm.rule}"
    best = None if result is None else result.best
    return ReportData(
        path=folder,
        kind="train",
        arms=(replace(arm, name=name),),
        metrics=metrics_to_show([run], "auc" if best is None else best.metric),
        estimates=() if estimate is None else ((folder.name, estimate),),
        chosen=name,
        model=None if result is None else folder,
        caveats=caveats,
        missing=() if result is not None else (NOT_ENDED,),
        digest=config.data_digest or None,
        settings={
            "Run": config.run,
            "Training": config.training,
            "Data": {"split": config.split or None, "data_digest": config.data_digest or None},
            "Machine": {} if result is None else _machine(result),
        },
    )


def arm_from_runs(runs: list[Path]) -> ArmRuns:
    """The arm whose seeds are these runs, from the records in their folders."""
    requests = [_read_request(run) for run in runs]
    rule = requests[0].k
    seeds = tuple(_seed_run(run, request.seed) for run, request in zip(runs, requests, strict=True))
    return ArmRuns(rule, rule, _peak(rule), None, False, requests[0].learning_rate, (), seeds)


def read_log(folder: Path) -> RunLog | None:
    """The log of a run; None if it has none."""
    return read_run(folder) if (folder / LOG).is_file() else None


def metrics_to_show(runs: Iterable[SeedRun], kept_by: str = "auc") -> tuple[str, ...]:
    """AUC, and at most two others that every run has; first ``kept_by``, the metric that chose the weights."""
    names = [set(scores.metrics) for run in runs if (scores := run.test or run.val) is not None]
    shared = set.intersection(*names) if names else set()
    first = [name for name in dict.fromkeys((kept_by, *_PREFERRED_METRICS)) if name in shared]
    return ("auc", *first[:2])


def _read_request(folder: Path) -> _RequestFields:
    path = folder / CONFIG
    return decode(_RequestFields, read_record(RunConfig, path).run, f"{path}, run")


def _seed_run(folder: Path, seed: int) -> SeedRun:
    result, log = read_result(folder), read_log(folder)
    if result is None:
        return SeedRun(seed, str(folder), "waiting", log=log)
    return SeedRun(
        seed,
        str(folder),
        "done",
        steps=result.steps,
        seconds=result.seconds,
        best_step=None if result.best is None else result.best.step,
        val=result.evaluations.get("val"),
        test=result.evaluations.get("test"),
        recommended=result.recommended,
        log=log,
    )


def _peak(rule: str) -> float | None:
    """The K of a rule such as ``4``, the peak of one such as ``warm:20``; None for other rules and other texts."""
    try:
        check_rule(rule)
    except InputError:
        return None
    if needs_data(rule):
        return None
    first, *numbers = rule.split(":")
    return float(numbers[0] if numbers else first)


def _estimate(folder: Path, run: SeedRun) -> tuple[Estimate | None, tuple[str, ...]]:
    """The estimate of a run with K = 1, or why there is none."""
    if run.log is None or not run.log.of_split("val"):
        return None, ()
    try:
        return estimate_from_log_file(folder / LOG), ()
    except InputError as error:
        return None, (f"No estimate: {error}",)


def _machine(result: RunResult) -> dict[str, object]:
    return {name: getattr(result, name) for name in ("device", "precision", "threads", "processes", "parameters")}

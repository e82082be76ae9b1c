"""`ReportData` from the folder of a job: ``job.json``, ``estimate.json``, ``results.json`` and its runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from negwise.datasets import DataReport
from negwise.errors import InputError
from negwise.files import read_json
from negwise.records import (
    CONFIG,
    ESTIMATE,
    JOB,
    LOG,
    RACE,
    RESULTS,
    ArmResult,
    JobRecord,
    PilotResult,
    RaceStart,
    Results,
    RunLog,
    decode,
    encode,
    read_race,
    read_record,
    read_result,
)
from negwise.report.from_run import arm_from_runs, metrics_to_show, read_log
from negwise.report.report_data import ArmRuns, ReportData, SeedRun
from negwise.theory.estimate import Estimate

MAX_NAMED = 8
"""Runs that a sentence names; it counts the others."""


def is_job(folder: Path) -> bool:
    return (folder / JOB).is_file()


def job_report_data(folder: Path) -> ReportData:
    """The data for the page of a job. If the job is half done, ``missing`` says what it does not have yet."""
    job = read_record(JobRecord, folder / JOB)
    data = decode(DataReport, job.data, f"{folder / JOB}, data")
    estimate = _estimate(folder / ESTIMATE)
    results = read_record(Results, folder / RESULTS) if (folder / RESULTS).is_file() else None
    pilot = _pilot_from_folder(folder) if results is None else results.pilot
    arms = _arms_from_folders(folder) if results is None else [_arm(folder, arm) for arm in results.arms]
    pilot_seconds = 0.0 if pilot is None else pilot.seconds or 0.0
    arms = [replace(arm, pilot_seconds=pilot_seconds) if arm.uses_pilot else arm for arm in arms]
    _check_names(folder, arms)
    paper = job.request.get("method", "paper") == "paper"  # before there was a choice, every job was one
    report = ReportData(
        path=folder,
        kind=job.kind,
        arms=tuple(arms),
        metrics=metrics_to_show(run for arm in arms for run in arm.done),
        estimates=() if estimate is None else ((folder.name, estimate),),
        pilot=pilot,
        missing=tuple(_missing(job.kind == "run" and paper, estimate, results is not None, pilot, arms)),
        data=data,
        digest=data.digest,
        notes=job.plan.notes,
        settings=_settings(job),
        paper=paper,
        epoch=job.plan.times.epoch,
    )
    if results is None:
        return report
    return replace(
        report,
        metrics=results.metrics or report.metrics,
        chosen=results.chosen,
        model=None if results.model is None else folder / results.model,
        caveats=results.caveats,
        differences=results.differences,
        decisions=results.decisions,
        baselines=results.baselines,
        corpus=results.corpus,
        candidates=results.candidates,
        shares=results.shares,
        seconds=results.seconds,
        seconds_by_use=results.seconds_by_use,
        raced=_raced(folder) if results.decisions else {},
    )


def _estimate(path: Path) -> Estimate | None:
    return Estimate.from_dict(read_json(path), str(path)) if path.is_file() else None


def _pilot_from_folder(folder: Path) -> PilotResult | None:
    """The pilot of a job without results, from the records in its folder."""
    logs = sorted((folder / "pilot").glob(f"seed-*/{LOG}"))
    if not logs:
        return None
    run = logs[0].parent
    result = read_result(run)
    name = run.relative_to(folder).as_posix()
    return PilotResult(name) if result is None else PilotResult(name, result.steps, result.seconds)


def _arm(folder: Path, arm: ArmResult) -> ArmRuns:
    seeds = tuple(SeedRun(**vars(seed), log=read_log(folder / seed.run)) for seed in arm.seeds)
    return ArmRuns(**{**vars(arm), "seeds": seeds})


def _arms_from_folders(folder: Path) -> list[ArmRuns]:
    """The arms of a job without results, from the records in the folders of their runs."""
    arms = []
    for place in sorted((folder / "arms").glob("*")):
        runs = [run for run in sorted(place.glob("seed-*")) if (run / CONFIG).is_file()]
        if runs:
            arms.append(arm_from_runs(runs))
    return sorted(arms, key=lambda arm: (arm.k or 0.0, arm.name))


def _check_names(folder: Path, arms: list[ArmRuns]) -> None:
    names = [arm.name for arm in arms]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise InputError(
            f"{folder / RESULTS}: two arms are called {repeated!r}, expected a name of its own for each arm."
        )


def _raced(folder: Path) -> dict[str, RunLog]:
    """The logs of the candidates of a race by name, as far as there are any. They raced with the first seed."""
    starts = [record for record in read_race(folder / RACE) if isinstance(record, RaceStart)]
    found = {}
    for candidate in starts[0].candidates if starts else ():
        runs = sorted((folder / "runs" / candidate.folder).glob("seed-*"), key=lambda run: int(run.name[5:]))
        log = read_log(runs[0]) if runs else None
        if log is not None:
            found[candidate.name] = log
    return found


def _missing(
    has_pilot: bool, estimate: Estimate | None, has_results: bool, pilot: PilotResult | None, arms: list[ArmRuns]
) -> list[str]:
    sentences = []
    if has_pilot and pilot is None:
        sentences.append("The pilot has not started.")
    elif has_pilot and estimate is None:
        sentences.append("There is no estimate yet: the pilot has not ended.")
    if not has_results:
        sentences.append(f"There is no {RESULTS} yet. The page shows what the runs themselves have recorded.")
    runs = [(f"{arm.name} (seed {run.seed})", run) for arm in arms for run in arm.seeds]
    waiting = [name for name, run in runs if run.state == "waiting"]
    if waiting:
        more = f" and {len(waiting) - MAX_NAMED} more" if len(waiting) > MAX_NAMED else ""
        sentences.append(f"Not finished yet: {', '.join(waiting[:MAX_NAMED])}{more}.")
    lost = [name for name, run in runs if run.state == "done" and (run.log is None or not run.log.steps)]
    if lost:
        sentences.append(f"No log was found, so the curves leave out: {', '.join(lost[:MAX_NAMED])}.")
    return sentences


def _settings(job: JobRecord) -> dict[str, dict[str, Any]]:
    plan = {name: value for name, value in encode(job.plan).items() if name not in ("notes", "costs")}
    return {
        "Request": job.request,
        "Plan": plan,
        "Machine": job.machine,
        "Versions": {"negwise": job.negwise or None, **job.versions},
    }

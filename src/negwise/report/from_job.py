"""The folder of a job: ``job.json``, ``estimate.json``, ``results.json`` and the runs below it, finished or not."""

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
    RESULTS,
    ArmResult,
    JobRecord,
    PilotResult,
    Results,
    decode,
    encode,
    read_record,
    read_result,
)
from negwise.report.from_run import arm_of, log_of, shown_metrics
from negwise.report.subject import Arm, Subject, Trial
from negwise.theory.estimate import Estimate

MOST_NAMED = 8
"""Runs that a sentence names; of the others it says how many they are."""


def is_job(folder: Path) -> bool:
    return (folder / JOB).is_file()


def job_subject(folder: Path) -> Subject:
    """A job as the subject of a page. What a half-done job does not have yet is said in ``missing``."""
    job = read_record(JobRecord, folder / JOB)
    data = decode(DataReport, job.data, f"{folder / JOB}, data")
    estimate = _estimate(folder / ESTIMATE)
    results = read_record(Results, folder / RESULTS) if (folder / RESULTS).is_file() else None
    pilot = _pilot(folder) if results is None else results.pilot
    arms = _arms_of_runs(folder) if results is None else [_arm(folder, arm) for arm in results.arms]
    charged = 0.0 if pilot is None else pilot.seconds or 0.0
    arms = [replace(arm, pilot_seconds=charged) if arm.uses_pilot else arm for arm in arms]
    _check_names(folder, arms)
    subject = Subject(
        path=folder,
        kind=job.kind,
        arms=tuple(arms),
        metrics=shown_metrics(trial for arm in arms for trial in arm.done),
        estimates=() if estimate is None else ((folder.name, estimate),),
        pilot=pilot,
        missing=tuple(_missing(job.kind, estimate, results is not None, pilot, arms)),
        data=data,
        digest=data.digest,
        notes=job.plan.notes,
        facts=_facts(job),
    )
    if results is None:
        return subject
    return replace(
        subject,
        metrics=results.metrics or subject.metrics,
        chosen=results.chosen,
        model=None if results.model is None else folder / results.model,
        caveats=results.caveats,
        differences=results.differences,
    )


def _estimate(path: Path) -> Estimate | None:
    return Estimate.from_dict(read_json(path), str(path)) if path.is_file() else None


def _pilot(folder: Path) -> PilotResult | None:
    """The pilot of a job without results, as far as its folder tells of it."""
    logs = sorted((folder / "pilot").glob(f"seed-*/{LOG}"))
    if not logs:
        return None
    run = logs[0].parent
    result = read_result(run)
    name = run.relative_to(folder).as_posix()
    return PilotResult(name) if result is None else PilotResult(name, result.steps, result.seconds)


def _arm(folder: Path, arm: ArmResult) -> Arm:
    seeds = tuple(Trial(**vars(seed), log=log_of(folder / seed.run)) for seed in arm.seeds)
    return Arm(**{**vars(arm), "seeds": seeds})


def _arms_of_runs(folder: Path) -> list[Arm]:
    """The arms of a job without results, as far as their runs tell of them."""
    arms = []
    for place in sorted((folder / "arms").glob("*")):
        runs = [run for run in sorted(place.glob("seed-*")) if (run / CONFIG).is_file()]
        if runs:
            arms.append(arm_of(runs))
    return sorted(arms, key=lambda arm: (arm.k or 0.0, arm.name))


def _check_names(folder: Path, arms: list[Arm]) -> None:
    names = [arm.name for arm in arms]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{folder / RESULTS}: two arms are called {twice!r}, expected a name each.")


def _missing(
    kind: str, estimate: Estimate | None, has_results: bool, pilot: PilotResult | None, arms: list[Arm]
) -> list[str]:
    found = []
    if kind == "run" and pilot is None:
        found.append("The pilot has not begun.")
    elif kind == "run" and estimate is None:
        found.append("There is no estimate yet: the pilot has not ended.")
    if not has_results:
        found.append("There is no table of results yet; what is shown was read from the runs themselves.")
    runs = [(f"{arm.name} (seed {trial.seed})", trial) for arm in arms for trial in arm.seeds]
    waiting = [name for name, trial in runs if trial.state == "waiting"]
    if waiting:
        more = f" and {len(waiting) - MOST_NAMED} more" if len(waiting) > MOST_NAMED else ""
        found.append(f"Not trained to the end yet: {', '.join(waiting[:MOST_NAMED])}{more}.")
    lost = [name for name, trial in runs if trial.state == "done" and (trial.log is None or not trial.log.steps)]
    if lost:
        found.append(f"The log is gone, so the curves lack: {', '.join(lost[:MOST_NAMED])}.")
    return found


def _facts(job: JobRecord) -> dict[str, dict[str, Any]]:
    plan = {name: value for name, value in encode(job.plan).items() if name != "notes"}
    return {
        "Asked for": job.request,
        "Plan": plan,
        "Machine": job.machine,
        "Versions": {"negwise": job.negwise or None, **job.versions},
    }

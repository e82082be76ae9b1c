"""Where training starts from, if not from random weights: the model of ``--from``, or a job that gets more time.

A job that was done and is asked for with a larger budget goes on. Once that is planned, what it has is put aside in
``before-1`` of its folder, and a model with the weights of its winner is trained for the rest of the time.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from negwise.errors import InputError
from negwise.inference.model_folder import ModelFolder, find_model
from negwise.jobs.race import RaceLog
from negwise.records import JOB, LOG, RACE, RESULTS, JobRecord, Plan, Results, Start, read_record, read_result, read_run
from negwise.records.checkpoint_records import digest_of
from negwise.requests import RunRequest, identity_of, parse_duration
from negwise.training import config_changes

BEFORE, MOVING = "before-", ".moving"
OWN = ("runs", "figures", "report.html", RESULTS, RACE, JOB)
"""What a job writes; ``job.json`` is moved last, so that until then the folder has that job."""


def asks_for_more(job: Path, request: RunRequest) -> bool:
    """Whether the folder ``job`` has this very job, done to the last figure, and ``request`` gives it more time."""
    if not (job / JOB).exists() or not (job / RESULTS).exists() or request.method is not None:
        return False
    known, results = read_record(JobRecord, job / JOB), read_record(Results, job / RESULTS)
    before = known.request.get("budget")
    if known.kind != "run" or before is None or request.budget is None:
        return False
    if config_changes({**known.request, "budget": None}, {**identity_of(request), "budget": None}):
        return False
    done = results.model is not None and results.seconds is not None
    return done and parse_duration(request.budget) > parse_duration(str(before))


def spent_before(plan: Plan) -> float:
    """Seconds before training: of earlier rounds of this job, of reading and of timing."""
    return plan.spent + (0.0 if plan.start is None else plan.start.seconds)


def seconds_of(run: Path) -> float:
    """Seconds that a run took so far."""
    result = read_result(run)
    if result is not None:
        return result.seconds or 0.0
    steps = read_run(run).steps if (run / LOG).exists() else ()
    return steps[-1].time or 0.0 if steps else 0.0


def next_round(folder: Path, request: RunRequest) -> Start | None:
    """How the job in ``folder`` goes on with ``request``; None where it does not."""
    if not asks_for_more(folder, request):
        return None
    job = read_record(JobRecord, folder / JOB)
    raced = [folder / "runs" / one.folder / f"seed-{request.seed}" for one in RaceLog(folder).candidates]
    spent = spent_before(job.plan) + sum(map(seconds_of, raced))  # other seeds and other K came on top
    number = 1 + max((int(one.name.removeprefix(BEFORE)) for one in _rounds(folder)), default=0)
    return Start(f"{BEFORE}{number}", _digest(find_model(folder)), round(spent, 3), goes_on=True)


def put_aside(folder: Path, start: Start) -> None:
    """Move what the job in ``folder`` has into the folder of ``start``."""
    (folder / f"{start.folder}{MOVING}").mkdir()
    _finish_moving(folder)


def settle(folder: Path, request: RunRequest) -> None:
    """End a move that was cut short. Where no new round was planned after it, the job goes back to its place."""
    _finish_moving(folder)
    rounds = _rounds(folder)
    if (folder / JOB).exists() or not rounds or asks_for_more(rounds[-1], request):
        return
    for name in OWN:
        if (rounds[-1] / name).exists():
            shutil.move(rounds[-1] / name, folder / name)
    rounds[-1].rmdir()


def start_of(folder: Path, request: RunRequest) -> Start | None:
    """Where a job in ``folder`` that has no plan yet starts from; None for random weights."""
    rounds = _rounds(folder)
    if not (folder / JOB).exists() and rounds:  # put aside, and killed before the new plan was written
        found = next_round(rounds[-1], request)
        assert found is not None  # `settle` has seen to it
        return Start(rounds[-1].name, found.digest, found.seconds, goes_on=True)
    if request.start is None:
        return None
    return Start(str(Path(request.start).resolve()), _digest(find_model(request.start)))


def open_start(folder: Path, start: Start) -> ModelFolder:
    """The older model of ``start``, whose weights must be those that the job began with.

    A job that goes on and was not put aside yet has it in ``folder`` itself.
    """
    aside = folder / start.folder
    found = find_model(start.folder if not start.goes_on else aside if aside.exists() else folder)
    if _digest(found) != start.digest:
        raise InputError(
            f"{found.path}: its weights changed since this job began with them. Restore them, or begin anew with "
            "another --out."
        )
    return found


def _finish_moving(folder: Path) -> None:
    for target in folder.glob(f"{BEFORE}*{MOVING}") if folder.is_dir() else ():
        for name in OWN:
            if (folder / name).exists():
                shutil.move(folder / name, target / name)
        target.rename(target.with_name(target.name.removesuffix(MOVING)))


def _digest(model: ModelFolder) -> str:
    return digest_of(model.weight_bytes())


def _rounds(folder: Path) -> list[Path]:
    """Folders of what was put aside, the last round last."""
    found = [one for one in folder.glob(f"{BEFORE}*") if one.name.removeprefix(BEFORE).isdecimal()]
    return sorted(found, key=lambda one: int(one.name.removeprefix(BEFORE)))

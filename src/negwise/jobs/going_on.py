"""Where training starts from, if not from random weights: the model of ``--from``, or a job that gets more time.

A job that was done and is asked for with a larger budget goes on: what it has is put aside in ``before-1`` of its
folder, and a model with the weights of its winner is trained for the rest of the time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from negwise.errors import InputError
from negwise.files import LOCK
from negwise.inference.model_folder import ModelFolder, find_model
from negwise.records import JOB, RESULTS, JobRecord, Results, Start, read_record
from negwise.records.checkpoint_records import digest_of
from negwise.requests import RunRequest, identity_of, parse_duration
from negwise.training import config_changes

BEFORE, MOVING = "before-", ".moving"


def asks_for_more(folder: Path, request: RunRequest) -> bool:
    """Whether ``folder`` has this very job, done, and ``request`` gives it more time."""
    if not (folder / JOB).exists() or not (folder / RESULTS).exists() or request.method is not None:
        return False
    job, asked = read_record(JobRecord, folder / JOB), identity_of(request)
    before = job.request.get("budget")
    if job.kind != "run" or before is None or request.budget is None:
        return False
    if config_changes({**job.request, "budget": None}, {**asked, "budget": None}):
        return False
    return parse_duration(request.budget) > parse_duration(str(before)) and _model_of(folder) is not None


def put_aside(folder: Path) -> None:
    """Move what ``folder`` has into ``before-N``; `finish_moving` ends what a kill cut short."""
    number = 1 + max((int(one.name.removeprefix(BEFORE)) for one in _rounds(folder)), default=0)
    (folder / f"{BEFORE}{number}{MOVING}").mkdir()
    finish_moving(folder)


def finish_moving(folder: Path) -> None:
    """Move the rest of a job that is being put aside. ``job.json`` goes last: until then the folder has that job."""
    for target in folder.glob(f"{BEFORE}*{MOVING}") if folder.is_dir() else ():
        entries = [one for one in folder.iterdir() if one.name != LOCK and not one.name.startswith(BEFORE)]
        for entry in sorted(entries, key=lambda one: one.name == JOB):
            shutil.move(entry, target / entry.name)
        target.rename(target.with_name(target.name.removesuffix(MOVING)))


def start_of(folder: Path, request: RunRequest) -> Start | None:
    """Where a new job in ``folder`` starts from; None for random weights."""
    rounds = sorted(_rounds(folder), key=lambda one: int(one.name.removeprefix(BEFORE)))
    if rounds:
        spent = read_record(Results, rounds[-1] / RESULTS).seconds or 0.0
        return Start(rounds[-1].name, _digest(find_model(rounds[-1])), spent, goes_on=True)
    if request.start is None:
        return None
    return Start(request.start, _digest(find_model(request.start)))


def open_start(folder: Path, start: Start) -> ModelFolder:
    """The older model of ``start``, whose weights must be those that the job began with."""
    found = find_model(folder / start.folder if start.goes_on else start.folder)
    if _digest(found) != start.digest:
        raise InputError(
            f"{found.path}: its weights changed since this job began with them. Restore them, or begin anew with "
            "another --out."
        )
    return found


def _digest(model: ModelFolder) -> str:
    return digest_of(model.weight_bytes())


def _model_of(folder: Path) -> str | None:
    return read_record(Results, folder / RESULTS).model


def _rounds(folder: Path) -> Iterator[Path]:
    """Folders of what was put aside."""
    return (one for one in folder.glob(f"{BEFORE}*") if one.name.removeprefix(BEFORE).isdecimal())

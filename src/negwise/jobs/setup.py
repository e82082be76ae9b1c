"""Before anything is trained: what the data is, what is trained on it, and for how long. Written to ``job.json``."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import negwise
from negwise.datasets import inspect
from negwise.datasets.inspection import DataReport
from negwise.errors import InputError
from negwise.jobs.arms import Arm, check_ceiling
from negwise.jobs.crew import ask_once
from negwise.jobs.plan import Pace, Plan, make_plan, seconds_of, spread
from negwise.jobs.presets import Preset, preset
from negwise.jobs.training import JOB, Training, check_count, check_rate
from negwise.theory.effectiveness import check_lam
from negwise.training.holding import check_writable
from negwise.training.run_folder import changes, read_json, write_json

TIMED_STEPS, TIMED_K = {"cpu": 8, "cuda": 20}, 20
"""On a GPU more, since the first steps of each size compile and record."""
SHARED = ("columns", "batch_size", "split", "pool", "queries", "skip_bad", "precision")
"""What a request says of every run in it; None leaves it to the preset."""
PARTS = frozenset(("kind", "request", "data", "machine", "plan"))
"""What ``job.json`` has at least."""
PACKAGES = ("numpy", "scipy", "torch", "lightning-fabric", "pyarrow", "numba", "altair")

Tell = Callable[[str], None]


@dataclass(frozen=True)
class SetUp:
    """What every cell shares: ``training`` but for K, steps, learning rate and seed.

    ``ceiling`` is the most negatives that a row can have; ``spent`` are the seconds before anything was trained.
    """

    training: Training
    rate: float
    top_n: str
    ceiling: float
    pace: Pace
    plan: Plan
    spent: float
    jobs: int
    threads: int


def check(request: dict[str, Any]) -> None:
    """Refuse at once what no data and no machine could make right."""
    for name in ("steps", "seeds", "batch_size", "pool"):
        check_count(name, request[name])
    rate = request["learning_rate"]
    rates = rate if isinstance(rate, tuple) else () if rate is None else (rate,)
    for each in rates:
        check_rate(each)
    if len({f"{each:g}" for each in rates}) < len(rates):
        raise InputError(f"learning_rate: got {', '.join(f'{each:g}' for each in rates)}, expected each once.")
    if request.get("lam") is not None:
        check_lam(request["lam"])
    if request.get("budget") is not None:
        seconds_of(request["budget"])


def set_up(
    folder: Path,
    request: dict[str, Any],
    *,
    kind: str,
    cells: int,
    pilot: bool,
    asked: Sequence[Arm],
    jobs: int | None,
    tell: Tell,
) -> SetUp:
    """Look at the data and plan, or take up the plan that ``folder`` has. ``asked``: arms whose K was named."""
    began = time.monotonic()
    report = inspect(request["data"], columns=request["columns"], skip_bad=request["skip_bad"])
    if report.negatives.most < 1:
        raise InputError(
            f"{request['data']}: no positive has a single negative ({report.negatives.source}), so there is nothing "
            "to tell it from. More users, items or texts are needed."
        )
    tell(report.headline())
    found = _resume(folder, request, kind, report) if (folder / JOB).exists() else None
    device = device_of(request["device"]) if found is None else str(found["machine"]["device"])
    chosen = preset(report, request["model"], device)
    side_by_side, threads = spread(jobs, device, cells)
    ceiling = _ceiling(request, chosen, report)
    for each in asked:
        check_ceiling(each, ceiling)
    if pilot and ceiling < 2:
        raise InputError(
            f"{request['data']}: no row has more than 1 negative to draw ({report.negatives.source}), so K = 1 is all "
            "there is, and there is nothing to estimate. Type: negwise train --k 1"
        )
    if found is not None:
        plan, pace = _planned(folder, found["plan"])
        threads, spent = int(found["plan"]["threads"]), float(found["plan"]["spent"])
        tell(f"{folder} has this job: going on with what is left of it.")
    else:
        check_writable(folder, "job")
        training, rate = _training(request, chosen, device, threads)
        pace = _pace(training, rate, tell)
        budget = request.get("budget")
        plan = make_plan(
            pace,
            cells=cells,
            jobs=side_by_side,
            steps=request["steps"],
            budget=None if budget is None else seconds_of(budget),
            pilot=pilot,
        )
        spent = round(time.monotonic() - began, 3)
        body = {
            "kind": kind,
            "negwise": negwise.__version__,
            "versions": versions(),
            "machine": machine(device),
            "request": request,
            "data": report.to_dict(),
            "plan": {
                "length": asdict(plan),
                "pace": asdict(pace),
                "spent": spent,
                "threads": threads,
                "training": asdict(training),
                "notes": [chosen.note],
            },
        }
        write_json(folder / JOB, body)
    training, rate = _training(request, chosen, device, threads)
    tell(_said(chosen, plan, cells, pilot, side_by_side, device))
    return SetUp(training, rate, chosen.top_n, ceiling, pace, plan, spent, side_by_side, threads)


def _ceiling(request: dict[str, Any], chosen: Preset, report: DataReport) -> float:
    """The most negatives that a row can have."""
    most = float(report.negatives.most)
    return min(most, float(request["pool"] or Training.pool)) if chosen.task == "pairs" else most


def _resume(folder: Path, request: dict[str, Any], kind: str, report: DataReport) -> dict[str, Any]:
    found = read_json(folder / JOB)
    lacks = PARTS.difference(found if isinstance(found, dict) else ())
    if lacks:
        raise InputError(f"{folder / JOB}: no {min(lacks)!r} in it. Restore it, or choose another folder with --out.")
    if found["kind"] != kind:
        raise InputError(f"{folder} has a {found['kind']}, not a {kind}. Choose another folder with --out.")
    if found["data"]["digest"] != report.digest:
        raise InputError(
            f"{folder} has a job of its own, and the data changed since: its content hash was "
            f"{found['data']['digest']} and is {report.digest}. Nothing was touched. Choose another folder with --out."
        )
    changed = changes(found["request"], request)
    if changed:
        raise InputError(
            f"{folder} has a job of its own, and the request changed since: {'; '.join(changed)}. Nothing was touched. "
            "Go on with what it was, or choose another folder with --out."
        )
    return found


def _training(request: dict[str, Any], chosen: Preset, device: str, threads: int) -> tuple[Training, float]:
    asked = {name: request[name] for name in SHARED if request[name] is not None}
    fields = {"precision": "32-true", **chosen.fields, **asked}
    rate = fields.pop("learning_rate")
    own = request["learning_rate"]
    rate = own if isinstance(own, float) else rate
    return Training(data=request["data"], model=chosen.model, device=device, threads=threads, **fields), float(rate)


def _planned(folder: Path, record: dict[str, Any]) -> tuple[Plan, Pace]:
    try:
        return Plan(**record["length"]), Pace(**record["pace"])
    except TypeError as error:
        raise InputError(
            f"{folder} has a job of another version of negwise, whose plan this one cannot read ({error}). Nothing was "
            "touched. Go on with that version, or choose another folder with --out."
        ) from None


def _pace(training: Training, rate: float, tell: Tell) -> Pace:
    steps = TIMED_STEPS[device_of(training.device)]
    tell(f"Timing {steps} steps of {training.model} with K = {TIMED_K}, and {steps} with K = 1 ...")
    short = replace(training, k=str(TIMED_K), learning_rate=rate)
    return Pace(**ask_once({"do": "time", "training": asdict(short), "steps": steps}, training.threads or 1))


def _said(chosen: Preset, plan: Plan, cells: int, pilot: bool, jobs: int, device: str) -> str:
    first = f"a pilot with K = 1 of up to {plan.pilot_steps} steps, then " if pilot else ""
    many = "1 run" if cells == 1 else f"{cells} runs"
    return (
        f"Plan: {chosen.model} on {device}; {first}{many} of {plan.steps} steps, {jobs} at a time; "
        f"about {minutes(plan.seconds)}. {chosen.note}"
    )


def minutes(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def device_of(asked: str) -> str:
    """ "cpu" or "cuda", as asked for or as there is; a wrong word is told before any run begins."""
    if asked not in ("auto", "cpu", "cuda"):
        raise InputError(f"device: got {asked!r}, expected auto, cpu or cuda.")
    if asked == "cuda" and not torch.cuda.is_available():
        raise InputError("device: got 'cuda', but torch finds no GPU here. Type --device cpu, or auto.")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def machine(device: str) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {platform.system()}"
    return {"device": device, "name": name, "python": platform.python_version()}


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

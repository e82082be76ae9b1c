"""Before anything is trained: what the data is, what is trained on it, and for how long. Written to ``job.json``."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import torch

import negwise
from negwise.datasets import DataReport, inspect
from negwise.errors import InputError
from negwise.files import check_writable
from negwise.jobs.arms import Arm, check_ceiling
from negwise.jobs.plan import parallelism, plan_lengths
from negwise.jobs.presets import Preset, preset
from negwise.jobs.worker_pool import ask_worker
from negwise.records import JOB, JobRecord, Plan, RunLengths, StepTimes, decode, read_record, write_record
from negwise.requests import RunRequest, SweepRequest, TrainRequest, identity_of, parse_duration
from negwise.training import config_changes

TIMED_STEPS, TIMED_K = {"cpu": 8, "cuda": 20}, 20
"""On a GPU more, since the first steps of each size compile and record."""
SHARED = ("columns", "batch_size", "split", "pool", "queries", "skip_bad", "precision", "negatives", "loss")
"""What a request says of every run in it; None leaves it to the preset."""
PACKAGES = ("numpy", "scipy", "torch", "lightning-fabric", "pyarrow", "numba")

Log = Callable[[str], None]


@dataclass(frozen=True)
class Prepared:
    """What every run of a job shares: ``request`` but for K, steps, learning rate and seed.

    ``ceiling`` is the most negatives that a row can have; ``spent`` are the seconds before anything was trained;
    ``source`` is the content key of the data.
    """

    request: TrainRequest
    rate: float
    top_n: str
    ceiling: float
    times: StepTimes
    lengths: RunLengths
    spent: float
    jobs: int
    threads: int
    source: str | None


def prepare_job(
    folder: Path,
    request: RunRequest | SweepRequest,
    *,
    kind: Literal["run", "sweep"],
    runs: int,
    pilot: bool,
    arms: Sequence[Arm],
    log: Log,
) -> Prepared:
    """Look at the data and plan, or resume the plan that ``folder`` has. ``arms``: those whose K was typed."""
    began = time.monotonic()
    report = inspect(request.data, columns=request.columns, skip_bad=request.skip_bad)
    if report.negatives.most < 1:
        raise InputError(
            f"{request.data}: no positive has a single negative ({report.negatives.source}), so there is nothing "
            "to tell it from. More users, items or texts are needed."
        )
    log(report.headline())
    found = _resume(folder, request, kind, report) if (folder / JOB).exists() else None
    device = device_of(request.device) if found is None else str(found.machine["device"])
    chosen = preset(report, request.model, device)
    side_by_side, threads = parallelism(request.jobs, device, runs)
    ceiling = _ceiling(request, report)
    for arm in arms:
        check_ceiling(arm, ceiling)
    if pilot and ceiling < 2:
        raise InputError(
            f"{request.data}: no row has more than 1 negative to draw ({report.negatives.source}), so K = 1 is all "
            "there is, and there is nothing to estimate. Type: negwise train --k 1"
        )
    if found is not None:
        plan = found.plan
        log(f"{folder} has this job: resuming what is left of it.")
    else:
        check_writable(folder, "job")
        training, rate = _training(request, chosen, device, threads)
        times = _time_steps(training, rate, report.key, log)
        budget = getattr(request, "budget", None)
        lengths = plan_lengths(
            times,
            runs=runs,
            jobs=side_by_side,
            steps=request.steps,
            budget=None if budget is None else parse_duration(budget),
            pilot=pilot,
        )
        spent = round(time.monotonic() - began, 3)
        plan = Plan(lengths, times, spent, threads, identity_of(training), (chosen.note,))
        job = JobRecord(
            kind, identity_of(request), report.to_dict(), machine(device), plan, negwise.__version__, versions()
        )
        write_record(folder / JOB, job)
    training, rate = _training(request, chosen, device, plan.threads)
    log(_summary(chosen, plan.lengths, runs, pilot, side_by_side, device))
    return Prepared(
        training,
        rate,
        chosen.top_n,
        ceiling,
        plan.times,
        plan.lengths,
        plan.spent,
        side_by_side,
        plan.threads,
        report.key,
    )


def _ceiling(request: RunRequest | SweepRequest, report: DataReport) -> float:
    """The most negatives that a row can have."""
    most = float(report.negatives.most)
    pooled = report.kind == "pairs" and request.negatives in (None, "pool")
    return min(most, float(request.pool or TrainRequest.pool)) if pooled else most


def _resume(folder: Path, request: RunRequest | SweepRequest, kind: str, report: DataReport) -> JobRecord:
    found = read_record(JobRecord, folder / JOB)
    if found.kind != kind:
        raise InputError(f"{folder} has a {found.kind}, not a {kind}. Choose another folder with --out.")
    if found.data.get("digest") != report.digest:
        raise InputError(
            f"{folder} has a job of its own, and the data changed since: its content hash was "
            f"{found.data.get('digest')} and is {report.digest}. Nothing was touched. "
            "Choose another folder with --out."
        )
    changed = config_changes(found.request, identity_of(request))
    if changed:
        raise InputError(
            f"{folder} has a job of its own, and the request changed since: {'; '.join(changed)}. Nothing was touched. "
            "Resume with what it was, or choose another folder with --out."
        )
    return found


def _training(
    request: RunRequest | SweepRequest, chosen: Preset, device: str, threads: int
) -> tuple[TrainRequest, float]:
    """What every run shares, and the base learning rate."""
    own = {name: getattr(request, name) for name in SHARED if getattr(request, name) is not None}
    fields = {"precision": "32-true", **chosen.fields, **own}
    usual = fields.pop("learning_rate")
    asked = request.learning_rate
    rate = usual if asked is None else asked[0] if isinstance(asked, tuple) else asked
    return TrainRequest(data=request.data, model=chosen.model, device=device, threads=threads, **fields), float(rate)


def _time_steps(request: TrainRequest, rate: float, source: str | None, log: Log) -> StepTimes:
    steps = TIMED_STEPS[device_of(request.device)]
    log(f"Timing {steps} steps of {request.model} with K = {TIMED_K}, and {steps} with K = 1 ...")
    short = asdict(replace(request, k=str(TIMED_K), learning_rate=rate))
    reply = ask_worker({"do": "time", "request": short, "source": source, "steps": steps}, request.threads or 1)
    return decode(StepTimes, reply, "a worker's reply")


def _summary(chosen: Preset, lengths: RunLengths, runs: int, pilot: bool, jobs: int, device: str) -> str:
    first = f"a pilot with K = 1 of up to {lengths.pilot_steps} steps, then " if pilot else ""
    many = "1 run" if runs == 1 else f"{runs} runs"
    return (
        f"Plan: {chosen.model} on {device}; {first}{many} of {lengths.steps} steps, {jobs} at a time; "
        f"about {format_duration(lengths.seconds)}. {chosen.note}"
    )


def format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def device_of(requested: str) -> str:
    """ "cpu" or "cuda", as asked for or as there is; a wrong word is told before any run begins."""
    if requested not in ("auto", "cpu", "cuda"):
        raise InputError(f"device: got {requested!r}, expected auto, cpu or cuda.")
    if requested == "cuda" and not torch.cuda.is_available():
        raise InputError("device: got 'cuda', but torch finds no GPU here. Type --device cpu, or auto.")
    if requested == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return requested


def machine(device: str) -> dict[str, Any]:
    """The machine that results come from: device, its name, and the version of Python."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()}, {platform.system()}"
    return {"device": device, "name": name, "python": platform.python_version()}


def versions() -> dict[str, str]:
    """Versions of the packages that results depend on."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found

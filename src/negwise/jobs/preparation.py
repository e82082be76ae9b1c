"""Before anything is trained: what the data is, what is trained on it, and for how long. Written to ``job.json``."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
from negwise.jobs.going_on import asks_for_more
from negwise.jobs.plan import parallelism, plan_lengths
from negwise.jobs.worker_pool import ask_worker
from negwise.records import JOB, JobRecord, Plan, RunLengths, StepTimes, decode, read_record, write_record
from negwise.requests import TASK_OF, RunRequest, SweepRequest, TrainRequest, identity_of, parse_duration
from negwise.requests.training_requests import POOL
from negwise.stages import listening_since, signs_of_life
from negwise.tasks.recipes import METRICS, kind_of_data, resolve_device, with_recipe
from negwise.training import config_changes

TIMED_STEPS, TIMED_K = {"cpu": 8, "cuda": 20}, 20
"""On a GPU more, since the first steps of each size compile and record."""
SHARED = ("columns", "positive", "batch_size", "split", "pool", "queries", "skip_bad", "precision", "negatives", "loss")
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
    metrics: tuple[str, ...]
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
    report, found = look_at_data(folder, request, kind, arms, log)
    device = resolve_device(request.device) if found is None else str(found.machine["device"])
    side_by_side, threads = parallelism(request.jobs, device, runs)
    ceiling = ceiling_of(request, report)
    if pilot and ceiling < 2:
        raise InputError(
            f"{request.data}: no row has more than 1 negative to draw ({report.negatives.source}), so K = 1 is all "
            "there is, and there is nothing to estimate. Type: negwise train --k 1"
        )
    training, rate, _ = training_of(request, report, device, threads if found is None else found.plan.threads)
    if found is not None:
        plan = found.plan
    else:
        times = _time_steps(training, rate, report.key, log)
        typed = getattr(request, "budget", None)
        budget = None if typed is None else parse_duration(typed)
        lengths = plan_lengths(times, runs=runs, jobs=side_by_side, steps=request.steps, budget=budget, pilot=pilot)
        spent = round(time.monotonic() - began, 3)
        plan = Plan(lengths, times, spent, threads, identity_of(training))
        write_job(folder, kind, request, report, device, plan)
    log(_summary(training, plan.lengths, runs, pilot, side_by_side, device))
    return Prepared(
        training,
        rate,
        metrics_of(training),
        ceiling,
        plan.times,
        plan.lengths,
        plan.spent,
        side_by_side,
        plan.threads,
        report.key,
    )


def look_at_data(
    folder: Path, request: RunRequest | SweepRequest, kind: str, arms: Sequence[Arm], log: Log
) -> tuple[DataReport, JobRecord | None]:
    """What is in the data, and the job that ``folder`` has, if any; a request that the data cannot meet is refused."""
    with nullcontext() if listening_since() else signs_of_life(log):
        report = inspect(request.data, columns=request.columns, positive=request.positive, skip_bad=request.skip_bad)
    if report.negatives.most < 1:
        raise InputError(
            f"{request.data}: no positive has a single negative ({report.negatives.source}), so there is nothing "
            "to tell it from. More users, items or texts are needed."
        )
    log(report.headline())
    more = isinstance(request, RunRequest) and asks_for_more(folder, request) and _same_data(folder, report)
    found = _resume(folder, request, kind, report) if (folder / JOB).exists() and not more else None
    for arm in arms:
        check_ceiling(arm, ceiling_of(request, report))
    if found is not None:
        log(f"{folder} has this job: resuming what is left of it.")
    return report, found


def write_job(
    folder: Path,
    kind: Literal["run", "sweep"],
    request: RunRequest | SweepRequest,
    report: DataReport,
    device: str,
    plan: Plan,
) -> None:
    """Write ``job.json``, before anything is trained."""
    check_writable(folder, "job")
    job = JobRecord(
        kind, identity_of(request), report.to_dict(), machine(device), plan, negwise.__version__, versions()
    )
    write_record(folder / JOB, job)


def metrics_of(training: TrainRequest) -> tuple[str, ...]:
    """What is shown: the metric that decides, AUC, and the usual one for this kind of data."""
    assert training.metric is not None and training.model is not None
    return tuple(dict.fromkeys((training.metric, "auc", METRICS[TASK_OF[training.model]])))


def ceiling_of(request: RunRequest | SweepRequest, report: DataReport) -> float:
    """The most negatives that a row can have."""
    most = float(report.negatives.most)
    if "impressions" in report.counts and request.negatives not in (None, "impression"):
        return max(report.counts[name] for name in ("news", "items") if name in report.counts) - 1.0
    pooled = report.kind == "pairs" and (request.negatives == "pool" or (request.negatives is None and request.pool))
    return min(most, float(request.pool or POOL)) if pooled else most


def _same_data(folder: Path, report: DataReport) -> bool:
    return read_record(JobRecord, folder / JOB).data.get("digest") == report.digest


def _resume(folder: Path, request: RunRequest | SweepRequest, kind: str, report: DataReport) -> JobRecord:
    found = read_record(JobRecord, folder / JOB)
    if found.kind != kind:
        raise InputError(f"{folder} has a {found.kind}, not a {kind}. Choose another folder with --out.")
    if not _same_data(folder, report):
        raise InputError(
            f"{folder} has a job of its own, and the data changed since: its content hash was "
            f"{found.data.get('digest')} and is {report.digest}. Nothing was touched. "
            f"Choose another folder with --out; --from {folder} starts from its weights."
        )
    changed = config_changes(found.request, identity_of(request))
    if changed:
        raise InputError(
            f"{folder} has a job of its own, and the request changed since: {'; '.join(changed)}. Nothing was touched. "
            "Resume with what it was, or choose another folder with --out."
        )
    return found


def training_of(
    request: RunRequest | SweepRequest, report: DataReport, device: str, threads: int
) -> tuple[TrainRequest, float, int]:
    """What every run shares, the base learning rate, and the epochs of the recipe."""
    asked = request.learning_rate
    shared = {name: getattr(request, name) for name in SHARED}
    one_run = isinstance(request, RunRequest) and request.method is None
    shared["metric"] = getattr(request, "metric", None) or (None if one_run else "auc")
    asked_for = TrainRequest(data=request.data, model=request.model, device=device, threads=threads, **shared)
    found = with_recipe(asked_for, kind_of_data(report))
    rate = found.learning_rate if asked is None else asked[0] if isinstance(asked, tuple) else asked
    assert rate is not None and found.epochs is not None
    return replace(found, learning_rate=None, epochs=None), float(rate), found.epochs


def _time_steps(request: TrainRequest, rate: float, source: str | None, log: Log) -> StepTimes:
    """Steps timed in a process of their own, as runs have."""
    steps = TIMED_STEPS[resolve_device(request.device)]
    log(f"Timing {steps} steps of {request.model} with K = {TIMED_K}, and {steps} with K = 1 ...")
    short = replace(request, k=str(TIMED_K), learning_rate=rate)
    message = {"do": "time", "request": asdict(short), "source": source, "steps": steps}
    return decode(StepTimes, ask_worker(message, request.threads or 1), "a worker's reply")


def _summary(training: TrainRequest, lengths: RunLengths, runs: int, pilot: bool, jobs: int, device: str) -> str:
    first = f"a pilot with K = 1 of up to {lengths.pilot_steps} steps, then " if pilot else ""
    many = "1 run" if runs == 1 else f"{runs} runs"
    return (
        f"Plan: {training.model} on {device}; {first}{many} of {lengths.steps} steps, {jobs} at a time; "
        f"about {format_duration(lengths.seconds)}."
    )


def format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


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

"""The main job: look at the data, run a pilot, estimate K, train with a schedule, compare, and show why. And sweeps.

A job is a folder: ``job.json`` (what was asked, what is in the data, the plan), ``pilot/seed-0/``, ``estimate.json``,
``tuning/``, ``arms/``, ``results.json``, ``report.html``. The same call again resumes from whatever is there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from negwise.errors import InputError, NegwiseError
from negwise.files import lock_folder, write_json
from negwise.jobs.arms import Arm, arms_of, explain_schedule, parse_arm
from negwise.jobs.grid import RATES, Grid, rates_around, run_grid
from negwise.jobs.pilot import check_convergence, estimate_from_log
from negwise.jobs.plan import EVALUATIONS, FEWEST, START, fitting_steps, run_seconds, slowed_by_pilot
from negwise.jobs.pool_progress import pool_progress
from negwise.jobs.preparation import Log, Prepared, format_duration, prepare_job
from negwise.jobs.results import caveats_of, collect_results
from negwise.jobs.single_run import Trained, load
from negwise.jobs.worker_pool import PlannedRun, failure_of, train_all
from negwise.records import (
    ESTIMATE,
    RESULTS,
    PilotResult,
    Results,
    StepTimes,
    encode,
    read_result,
    read_run,
    write_record,
)
from negwise.requests import RunRequest, SweepRequest, TrainRequest, parse_duration
from negwise.requests.training_requests import SCHEDULES
from negwise.schedule import parse_rule
from negwise.theory.estimate import Estimate
from negwise.theory.reliability import MAX_K


@dataclass(frozen=True)
class JobResult:
    """What a job came to: its folder, the content of ``results.json``, and the estimate where there was a pilot."""

    folder: Path
    record: Results
    estimate: Estimate | None = None

    @property
    def k(self) -> float | None:
        """The K, or the peak of the schedule, of the model that is kept."""
        return next((arm.k for arm in self.record.arms if arm.name == self.record.chosen), None)

    @property
    def metric(self) -> str:
        """The metric that decided which model is kept."""
        return self.record.metrics[0]

    @property
    def model(self) -> Trained:
        """The model that is kept, with its data."""
        if self.record.model is None:
            raise NegwiseError(f"{self.folder}: no run came to an end; each says why in its failed.json.")
        return load(self.folder / self.record.model)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**encode(self.record), "out": str(self.folder)}


def run_job(request: RunRequest, *, log: Log = print) -> JobResult:
    """Do the whole job in the folder ``request.out``; ``log`` receives a line for each decision."""
    folder = Path(request.out)
    typed = () if request.schedule in SCHEDULES else (parse_arm(request.schedule),)
    runs_an_arm = len(RATES) + request.seeds - 1
    # What the estimate may add is not counted yet: a shorter run would be a shorter pilot, and a worse estimate.
    usual = 1 if not request.compare else 2 if request.schedule == "fixed" else 3
    with lock_folder(folder, "job"):
        prepared = prepare_job(folder, request, kind="run", runs=usual * runs_an_arm, pilot=True, arms=typed, log=log)
        estimate, pilot = _pilot(folder, prepared, request.lam, log)
        arms, notes = arms_of(estimate, request.schedule, prepared.ceiling, compare=request.compare)
        arms, steps, dropped = _within_budget(arms, runs_an_arm, prepared, request, pilot)
        for note in (*explain_schedule(request.schedule, estimate), *notes, *dropped):
            log(note)
        runs = runs_an_arm * len(arms)
        about = format_duration(run_seconds(_times(prepared, pilot), runs, prepared.jobs, steps))
        log(f"Training: K = {', '.join(arm.rule for arm in arms)}; {runs} runs of {steps} steps; about {about}.")
        grid = Grid(
            folder,
            tuple(arms),
            with_steps(prepared.request, steps),
            rates_around(prepared.rate),
            tuple(range(request.seeds)),
            source=prepared.source,
        )
        return _train_and_report(grid, prepared, "run", pilot, estimate, (*notes, *dropped), log)


def run_sweep(request: SweepRequest, *, log: Log = print) -> JobResult:
    """Train a grid in the folder ``request.out``; ``log`` receives a line for each decision."""
    folder = Path(request.out)
    arms = tuple(parse_arm(rule) for rule in request.k)
    if len({parse_rule(arm.rule) for arm in arms}) < len(arms):
        raise InputError(f"k: got {', '.join(request.k)}, expected one or more rules, each once.")
    rates = request.learning_rate if request.learning_rate is not None and len(request.learning_rate) > 1 else None
    runs = len(arms) * (request.seeds - 1 + len(rates or (1,)))
    with lock_folder(folder, "job"):
        prepared = prepare_job(folder, request, kind="sweep", runs=runs, pilot=False, arms=arms, log=log)
        grid = Grid(
            folder,
            arms,
            with_steps(prepared.request, prepared.lengths.steps),
            rates or (prepared.rate,),
            tuple(range(request.seeds)),
            source=prepared.source,
        )
        return _train_and_report(grid, prepared, "sweep", None, None, (), log)


def with_steps(request: TrainRequest, steps: int) -> TrainRequest:
    """``request`` for so many steps, evaluated a few times on the way."""
    return replace(request, steps=steps, eval_every=-(-steps // EVALUATIONS), evaluate_training=False)


def _within_budget(
    arms: list[Arm], runs_an_arm: int, prepared: Prepared, request: RunRequest, pilot: PilotResult
) -> tuple[list[Arm], int, tuple[str, ...]]:
    """The arms and the steps of each that the rest of the budget has room for.

    It follows from what is on record, so that a job that resumes comes to the same.
    """
    if request.budget is None:
        return arms, prepared.lengths.steps, ()
    left = parse_duration(request.budget) - prepared.spent - (pilot.seconds or 0.0) - START
    times, jobs = _times(prepared, pilot), prepared.lengths.jobs
    usual = [arm for arm in arms if arm.role != "extra"]
    steps = request.steps or max(FEWEST, fitting_steps(times, runs_an_arm * len(arms), jobs, left))
    need = run_seconds(times, runs_an_arm * len(arms), jobs, steps)
    if need <= left or len(usual) == len(arms):
        return arms, steps, ()
    steps = request.steps or max(FEWEST, fitting_steps(times, runs_an_arm * len(usual), jobs, left))
    left_out = ", ".join(arm.rule for arm in arms if arm.role == "extra")
    return usual, steps, (f"The budget has no room for K = {left_out}, which would have been tried too.",)


def _times(prepared: Prepared, pilot: PilotResult) -> StepTimes:
    return slowed_by_pilot(prepared.times, prepared.lengths, pilot.steps or 0, pilot.seconds or 0.0)


def _pilot(folder: Path, prepared: Prepared, lam: float, log: Log) -> tuple[Estimate, PilotResult]:
    """Train with K = 1 until the curves have converged, and estimate."""
    where = folder / "pilot" / "seed-0"
    rules = {"lam": lam, "max_k": min(prepared.ceiling, MAX_K)}
    lengths = prepared.lengths
    request = replace(
        prepared.request,
        k="1",
        learning_rate=prepared.rate,
        steps=lengths.pilot_steps,
        eval_every=lengths.pilot_eval_every,
    )
    planned = PlannedRun("pilot, K 1", where, request, prepared.source, rules)
    if read_result(where) is None:
        with pool_progress([planned]) as progress:
            train_all([planned], jobs=1, threads=prepared.threads, progress=progress)
    result = read_result(where)
    if result is None:
        failure = failure_of(where)
        raise NegwiseError(f"the pilot failed: {failure.error if failure else 'unknown'}. Its folder is {where}.")
    run_log = read_run(where)
    convergence = check_convergence(run_log, **rules)
    estimate = estimate_from_log(run_log, **rules)
    write_json(folder / ESTIMATE, estimate.to_dict())
    ended = "converged" if convergence.converged else "did not converge"
    log(f"Pilot: {result.steps} steps, {result.seconds:.0f} s; it {ended}: {convergence.why}.")
    log(estimate.headline())
    for reason in estimate.reasons:
        log(f"- {reason}")
    return estimate, PilotResult(
        run=where.relative_to(folder).as_posix(),
        steps=result.steps,
        seconds=result.seconds,
        converged=convergence.converged,
        why=convergence.why,
        val_auc=None if result.best is None else result.best.auc,
    )


def _train_and_report(
    grid: Grid,
    prepared: Prepared,
    kind: str,
    pilot: PilotResult | None,
    estimate: Estimate | None,
    notes: tuple[str, ...],
    log: Log,
) -> JobResult:
    """Train the grid, write ``results.json`` as far as it got whatever happens, then the report."""

    def collect() -> Results:
        found = collect_results(grid, kind=kind, metrics=("auc", prepared.top_n), pilot=pilot)
        found = replace(found, caveats=(*notes, *caveats_of(found, estimate)))
        write_record(grid.out / RESULTS, found)
        return found

    collect()
    try:
        run_grid(grid, jobs=prepared.jobs, threads=prepared.threads, progress=pool_progress)
    finally:
        results = collect()
    try:
        from negwise.report.write_report import write_report

        log(f"Report: {write_report([grid.out])}")
    except NegwiseError as error:  # what was trained stands, and is shown
        log(f"No report was made: {error}. Then type: negwise report {grid.out}")
    return JobResult(grid.out, results, estimate)

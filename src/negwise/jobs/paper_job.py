"""The paper's way to K: a pilot with K = 1, K* from its curves, training with K*, and other K to compare with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from negwise.errors import NegwiseError
from negwise.files import lock_folder, write_json
from negwise.jobs.arms import Arm, arms_of, explain_schedule, parse_arm
from negwise.jobs.grid import RATES, Grid, rates_around
from negwise.jobs.pilot import check_convergence, estimate_from_log
from negwise.jobs.plan import FEWEST, START, fitting_steps, run_seconds, slowed_by_pilot
from negwise.jobs.pool_progress import pool_progress
from negwise.jobs.preparation import Log, Prepared, format_duration, prepare_job
from negwise.jobs.results import JobResult
from negwise.jobs.sweep import train_and_report, with_steps
from negwise.jobs.worker_pool import PlannedRun, failure_of, train_all
from negwise.records import ESTIMATE, PilotResult, StepTimes, read_result, read_run
from negwise.requests import RunRequest, parse_duration
from negwise.requests.training_requests import SCHEDULES
from negwise.theory.estimate import Estimate
from negwise.theory.reliability import MAX_K


def run_paper_job(request: RunRequest, *, log: Log = print) -> JobResult:
    """The paper's way: a pilot with K = 1, K* from its curves, training with K*, and other K to compare with."""
    folder = Path(request.out)
    schedule = request.schedule or "fixed"
    typed = () if schedule in SCHEDULES else (parse_arm(schedule),)
    runs_an_arm = len(RATES) + request.seeds - 1
    # What the estimate may add is not counted yet: a shorter run would be a shorter pilot, and a worse estimate.
    usual = 1 if request.compare is not None else 2 if schedule == "fixed" else 3
    with lock_folder(folder, "job"):
        prepared = prepare_job(folder, request, kind="run", runs=usual * runs_an_arm, pilot=True, arms=typed, log=log)
        estimate, pilot = _pilot(folder, prepared, request.lam, log)
        arms, notes = arms_of(estimate, schedule, prepared.ceiling, compare=request.compare is None)
        arms, steps, dropped = _within_budget(arms, runs_an_arm, prepared, request, pilot)
        for note in (*explain_schedule(schedule, estimate), *notes, *dropped):
            log(note)
        runs = runs_an_arm * len(arms)
        about = format_duration(run_seconds(_times(prepared, pilot), runs, prepared.jobs, steps))
        log(f"Training: K = {', '.join(arm.rule for arm in arms)}; {runs} runs of {steps} steps; about {about}.")
        grid = Grid(
            folder,
            tuple(arms),
            with_steps(prepared.request, steps),
            rates_around(prepared.rate),
            tuple(range(request.seed, request.seed + request.seeds)),
            source=prepared.source,
        )
        return train_and_report(grid, prepared, "run", pilot, estimate, (*notes, *dropped), log)


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
        evaluate_training=True,
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

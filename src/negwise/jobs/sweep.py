"""A sweep: many runs over K and seeds, and the report of any grid of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from negwise.errors import InputError
from negwise.files import lock_folder
from negwise.jobs.arms import parse_arm
from negwise.jobs.grid import Grid, run_grid
from negwise.jobs.plan import EVALUATIONS
from negwise.jobs.pool_progress import pool_progress
from negwise.jobs.preparation import Log, Prepared, prepare_job
from negwise.jobs.results import JobResult, collect_and_write, write_page
from negwise.records import PilotResult
from negwise.requests import SweepRequest, TrainRequest
from negwise.schedule import parse_rule
from negwise.schedule.typed_rules import needs_data
from negwise.theory.estimate import Estimate


def run_sweep(request: SweepRequest, *, log: Log = print) -> JobResult:
    """Train a grid in the folder ``request.out``; ``log`` receives a line for each decision."""
    folder = Path(request.out)
    arms = tuple(parse_arm(rule) for rule in request.k)
    if len({arm.rule if needs_data(arm.rule) else parse_rule(arm.rule) for arm in arms}) < len(arms):
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
        return train_and_report(grid, prepared, "sweep", None, None, (), log)


def with_steps(request: TrainRequest, steps: int) -> TrainRequest:
    """``request`` for so many steps, evaluated a few times on the way."""
    return replace(request, steps=steps, eval_every=-(-steps // EVALUATIONS), evaluate_training=False)


def train_and_report(
    grid: Grid,
    prepared: Prepared,
    kind: str,
    pilot: PilotResult | None,
    estimate: Estimate | None,
    notes: tuple[str, ...],
    log: Log,
) -> JobResult:
    """Train the grid, write ``results.json`` as far as it got whatever happens, then the page."""

    def collect() -> JobResult:
        return collect_and_write(grid, kind, prepared.metrics, pilot, estimate, notes)

    collect()
    try:
        run_grid(grid, jobs=prepared.jobs, threads=prepared.threads, progress=pool_progress)
    finally:
        result = collect()
    write_page(grid.out, log)
    return result

"""The main job: look at the data, run a pilot, estimate K, train with a schedule, compare, and show why.

A job is a folder: ``job.json`` (what was asked, what is in the data, the plan), ``pilot/seed-0/``, ``estimate.json``,
``tuning/``, ``arms/``, ``results.json``, ``report.html``. The same call again goes on from whatever is there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from negwise.errors import InputError, NegwiseError
from negwise.jobs.arms import SCHEDULES, Arm, arm, arms_of, said_of
from negwise.jobs.crew import Cell, error_of, work
from negwise.jobs.grid import RATES, Grid, rates_around, run_grid
from negwise.jobs.pilot import estimate_of, judge
from negwise.jobs.plan import EVALUATIONS, FEWEST, START, Pace, fitting, run_seconds, seconds_of, seen_in
from negwise.jobs.results import caveats_of, results_of
from negwise.jobs.setup import SetUp, Tell, check, minutes, set_up
from negwise.jobs.training import Training
from negwise.jobs.watching import watch_for
from negwise.records import read_run
from negwise.schedule import parse_rule
from negwise.theory.estimate import Estimate
from negwise.theory.reliability import MAX_K
from negwise.training.holding import lock_folder
from negwise.training.run_folder import RESULT, read_json, write_json

ESTIMATE, RESULTS, REPORT = "estimate.json", "results.json", "report.html"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What `run` is asked. None means: what the preset for the data says (`negwise.jobs.presets`).

    ``schedule`` is "fixed", "warm" or "ans", up to the K* that is found, or a rule such as "warm:20". ``budget`` is a
    time such as "10m". ``compare`` also trains K = 1 and K* throughout.
    """

    data: str = "docs"
    columns: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    schedule: str = "fixed"
    budget: str | None = None
    steps: int | None = None
    seeds: int = 1
    compare: bool = True
    lam: float = 0.9
    batch_size: int | None = None
    learning_rate: float | None = None
    split: str | None = None
    pool: int | None = None
    queries: int | None = None
    skip_bad: int = 0
    precision: str | None = None
    device: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What `sweep` is asked: every rule of ``k`` with every seed; of several learning rates each arm keeps its best."""

    data: str = "docs"
    columns: dict[str, str] = field(default_factory=dict)
    k: tuple[str, ...] = ("1", "4", "20", "100")
    model: str | None = None
    steps: int | None = None
    seeds: int = 3
    batch_size: int | None = None
    learning_rate: tuple[float, ...] | float | None = None
    split: str | None = None
    pool: int | None = None
    queries: int | None = None
    skip_bad: int = 0
    precision: str | None = None
    device: str = "auto"


def run(job: Job, out: str | Path, *, jobs: int | None = None, tell: Tell = print) -> dict[str, Any]:
    """Do the whole job in the folder ``out``; returns what ``results.json`` has."""
    folder, request = Path(out), asdict(job)
    check(request)
    asked = () if job.schedule in SCHEDULES else (arm(job.schedule),)
    each = len(RATES) + job.seeds - 1
    # What the estimate may add is not counted yet: a shorter run would be a shorter pilot, and a worse estimate.
    usual = 1 if not job.compare else 2 if job.schedule == "fixed" else 3
    with lock_folder(folder, "job"):
        made = set_up(folder, request, kind="run", cells=usual * each, pilot=True, asked=asked, jobs=jobs, tell=tell)
        found, pilot = _pilot(folder, made, job.lam, tell)
        arms, notes = arms_of(found, job.schedule, made.ceiling, compare=job.compare)
        arms, steps, dropped = _within_budget(arms, each, made, job, pilot)
        for note in (*said_of(job.schedule, found), *notes, *dropped):
            tell(note)
        runs = each * len(arms)
        about = minutes(run_seconds(_pace(made, pilot), runs, made.jobs, steps))
        tell(f"Training: K = {', '.join(one.rule for one in arms)}; {runs} runs of {steps} steps; about {about}.")
        base = with_steps(made.training, steps)
        grid = Grid(folder, tuple(arms), base, rates_around(made.rate), tuple(range(job.seeds)))
        return _train_and_show(grid, made, "run", pilot, found, (*notes, *dropped), tell)


def sweep(asked: Sweep, out: str | Path, *, jobs: int | None = None, tell: Tell = print) -> dict[str, Any]:
    """Train a grid in the folder ``out``; returns what ``results.json`` has."""
    folder = Path(out)
    arms = tuple(arm(rule) for rule in asked.k)
    if not arms or len({parse_rule(each.rule) for each in arms}) < len(arms):
        raise InputError(f"k: got {', '.join(asked.k) or 'nothing'}, expected one or more rules, each once.")
    request = asdict(asked)
    check(request)
    rates = asked.learning_rate if isinstance(asked.learning_rate, tuple) else None
    cells = len(arms) * (asked.seeds - 1 + len(rates or (1,)))
    with lock_folder(folder, "job"):
        made = set_up(folder, request, kind="sweep", cells=cells, pilot=False, asked=arms, jobs=jobs, tell=tell)
        base = with_steps(made.training, made.plan.steps)
        grid = Grid(folder, arms, base, rates or (made.rate,), tuple(range(asked.seeds)))
        return _train_and_show(grid, made, "sweep", None, None, (), tell)


def with_steps(training: Training, steps: int) -> Training:
    """``training`` for so many steps, evaluated a few times on the way."""
    return replace(training, steps=steps, eval_every=-(-steps // EVALUATIONS), judge_training=False)


def _within_budget(
    arms: list[Arm], each: int, made: SetUp, job: Job, pilot: dict[str, Any]
) -> tuple[list[Arm], int, tuple[str, ...]]:
    """The arms and the steps of each that what is left of the budget has room for; ``each`` arm takes so many runs.

    It follows from what is on record, so that a job which goes on comes to the same.
    """
    if job.budget is None:
        return arms, made.plan.steps, ()
    left = seconds_of(job.budget) - made.spent - pilot["seconds"] - START
    pace, jobs = _pace(made, pilot), made.plan.jobs
    usual = [each_arm for each_arm in arms if each_arm.role != "extra"]
    steps = job.steps or max(FEWEST, fitting(pace, each * len(arms), jobs, left))
    need = run_seconds(pace, each * len(arms), jobs, steps)
    if need <= left or len(usual) == len(arms):
        return arms, steps, ()
    steps = job.steps or max(FEWEST, fitting(pace, each * len(usual), jobs, left))
    left_out = ", ".join(each_arm.rule for each_arm in arms if each_arm.role == "extra")
    return usual, steps, (f"The budget has no room for K = {left_out}, which would have been tried too.",)


def _pace(made: SetUp, pilot: dict[str, Any]) -> Pace:
    return seen_in(made.pace, made.plan, pilot["steps"], pilot["seconds"])


def _pilot(folder: Path, made: SetUp, lam: float, tell: Tell) -> tuple[Estimate, dict[str, Any]]:
    """Train with K = 1 until the curves say enough, and estimate."""
    where = folder / "pilot" / "seed-0"
    rules = {"lam": lam, "max_k": min(made.ceiling, MAX_K)}
    plan = made.plan
    training = replace(
        made.training, k="1", learning_rate=made.rate, steps=plan.pilot_steps, eval_every=plan.pilot_eval_every
    )
    cell = Cell("pilot, K 1", where, asdict(training), rules)
    if not (where / RESULT).exists():
        with watch_for([cell]) as watch:
            work([cell], jobs=1, threads=made.threads, watch=watch)
    if not (where / RESULT).exists():
        raise NegwiseError(f"the pilot failed: {error_of(where)}. Its folder is {where}.")
    result, log = read_json(where / RESULT), read_run(where)
    judgement = judge(log, **rules)
    found = estimate_of(log, **rules)
    write_json(folder / ESTIMATE, found.to_dict())
    pilot = {
        "run": where.relative_to(folder).as_posix(),
        "steps": result["steps"],
        "seconds": result["seconds"],
        "converged": judgement.converged,
        "why": judgement.why,
        "val_auc": None if result["best"] is None else result["best"]["auc"],
    }
    ended = "converged" if judgement.converged else "did not converge"
    tell(f"Pilot: {result['steps']} steps, {result['seconds']:.0f} s; it {ended}: {judgement.why}.")
    tell(found.headline())
    for reason in found.reasons:
        tell(f"- {reason}")
    return found, pilot


def _train_and_show(
    grid: Grid,
    made: SetUp,
    kind: str,
    pilot: dict[str, Any] | None,
    estimate: Estimate | None,
    notes: tuple[str, ...],
    tell: Tell,
) -> dict[str, Any]:
    """Train the grid, write ``results.json`` as far as it got whatever happens, then the report."""

    def collect() -> dict[str, Any]:
        found = results_of(grid, kind=kind, metrics=("auc", made.top_n), pilot=pilot)
        found["caveats"] = [*notes, *caveats_of(found, estimate)]
        write_json(grid.out / RESULTS, found)
        return found

    collect()
    try:
        run_grid(grid, jobs=made.jobs, threads=made.threads, watching=watch_for)
    finally:
        results = collect()
    try:
        from negwise.report.build import build

        tell(f"Report: {build([grid.out])}")
    except NegwiseError as error:  # what was trained stands, and is shown
        tell(f"No report was made: {error}. Then type: negwise report {grid.out}")
    return results

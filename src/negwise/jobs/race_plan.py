"""The plan of the main job: what a step costs here, who races, and how long the one that goes on may train."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path

from negwise.datasets import Source, open_source
from negwise.errors import InputError
from negwise.inference.model_folder import ModelFolder
from negwise.jobs.arms import Arm
from negwise.jobs.going_on import next_round, open_start, put_aside, spent_before, start_of
from negwise.jobs.plan import (
    CORPUS_SHARE,
    EVALUATION_SHARE,
    corpus_seconds,
    evaluations_of,
    fair_queries,
    last_seconds,
    parallelism,
    plan_one_run,
    validation_queries,
)
from negwise.jobs.preparation import Log, look_at_data, metrics_of, training_of, write_job
from negwise.jobs.race import (
    FEWEST_STEPS,
    MOST_CANDIDATES,
    RATE_STEP,
    RaceLog,
    rung_step,
    share_of_survivor,
    steps_between_evaluations,
)
from negwise.jobs.single_run import check_rules
from negwise.jobs.start_weights import copy_weights, learnt_from, like_model
from negwise.jobs.step_timing import costs_in_words, time_one_run
from negwise.metrics.model_ranking import subset
from negwise.records import Candidate, Horizon, Plan, RaceStart, Start, StepTimes, read_run
from negwise.requests import RunRequest, TrainRequest, identity_of, parse_duration
from negwise.stages import listening_since
from negwise.tasks import Task, make_task
from negwise.tasks.recipes import resolve_device

DEAR = 1.5
"""Negatives are dear where the rule's K makes a step so many times as long as a moderate K does."""
UNLIMITED = 10**9


@dataclass(frozen=True, eq=False)
class PreparedRace:
    """What all candidates share: ``request`` but for K, steps and learning rate; ``most`` steps by the recipe.

    ``task`` has the weights that all of them start from: those of ``older``, if that is not None. ``winner`` is the
    candidate that an earlier round of this job trained.
    """

    request: TrainRequest
    rate: float
    metrics: tuple[str, ...]
    plan: Plan
    most: int
    task: Task
    source: Source | None
    older: ModelFolder | None = None
    winner: Candidate | None = None


def prepare_race(folder: Path, request: RunRequest, arm: Arm, log: Log, *, keep: bool = True) -> PreparedRace:
    """Look at the data, time steps and plan; or resume the plan that ``folder`` has. ``keep``: write the plan there."""
    began = min(time.monotonic(), listening_since() or math.inf)  # loading torch came before
    report, found = look_at_data(folder, request, "run", (arm,), log)
    device = resolve_device(request.device) if found is None else str(found.machine["device"])
    _, threads = parallelism(1, device, 1)
    start = found.plan.start if found is not None else next_round(folder, request) or start_of(folder, request)
    older = None if start is None else open_start(folder, start)
    asked = request if older is None else replace(request, model=_same_model(request, older))
    training, rate, epochs = training_of(asked, report, device, threads if found is None else found.plan.threads)
    training = replace(training, seed=request.seed, evaluate_training=False)
    if older is not None:
        training = like_model(training, older.record)
        training = replace(training, learnt_from=learnt_from(older.record))
    source = None if report.key is None else open_source(report.key)
    own = replace(training, k=arm.rule, learning_rate=rate)
    task = make_task(own, source)
    check_rules(own, task, request.other_ks)
    if older is not None:
        log(f"Starting from {older.path}: it knows {copy_weights(task, own, older)}.")
    if found is None:
        plan = _new_plan(request, arm, training, rate, epochs, task, start, began, log)
        if keep:
            if start is not None and start.goes_on and not (folder / start.folder).exists():
                put_aside(folder, start)
                log(f"{folder} has this job, done. It goes on with the rest of {request.budget}; what it had is kept.")
                older = open_start(folder, start)
            write_job(folder, "run", request, report, training.device, plan)
    else:
        plan = found.plan
    log(f"A step of {training.model} on {device} takes {costs_in_words(plan)}")
    training = replace(training, max_k=plan.times.max_k)
    return PreparedRace(
        training,
        rate,
        metrics_of(training),
        plan,
        epochs * plan.times.epoch,
        with_queries(task, plan),
        source,
        older,
        RaceLog(_round_of(folder, start)).winner if start is not None and start.goes_on else None,
    )


def _round_of(folder: Path, start: Start) -> Path:
    """The folder of the job that goes on: put aside, or still in its place."""
    aside = folder / start.folder
    return aside if aside.exists() else folder


def _same_model(request: RunRequest, older: ModelFolder) -> str:
    if request.model not in (None, older.record.model):
        raise InputError(
            f"model: got {request.model!r}, but {older.path} has a {older.record.model}. Leave --model out, or --from."
        )
    return older.record.model


def task_of(prepared: PreparedRace, request: TrainRequest) -> Task:
    """The task of another seed, from the same start."""
    task = make_task(request, prepared.source)
    if prepared.older is not None:
        copy_weights(task, request, prepared.older)
    return with_queries(task, prepared.plan)


def _new_plan(
    request: RunRequest,
    arm: Arm,
    training: TrainRequest,
    rate: float,
    epochs: int,
    task: Task,
    start: Start | None,
    began: float,
    log: Log,
) -> Plan:
    log(f"Timing a few steps of {training.model} ...")
    typed = None if request.budget is None else parse_duration(request.budget)
    times, costs = time_one_run(replace(training, k=arm.rule, learning_rate=rate), task, typed)
    spent = time.monotonic() - began
    before = 0.0 if start is None else start.seconds
    left = None if request.budget is None else time_for_training(task, times, before + spent, request)
    room = None if left is None else EVALUATION_SHARE * left
    sizes = {name: len(task.splits[name].query_examples) for name in ("val", "test")}
    # With fewer pairs an evaluation is hardly cheaper: most of it encodes the texts that are ranked.
    often = may_race(request) and task.data.name != "pairs"
    val = validation_queries(sizes["val"], times.evaluation, left, often)
    test = fair_queries(sizes["test"], times.evaluation * sizes["test"] / sizes["val"], 1, room)
    times = replace(times, evaluation=times.evaluation * (val or sizes["val"]) / sizes["val"])
    most = epochs * times.epoch
    lengths = plan_one_run(times, runs=1, jobs=1, steps=request.steps, budget=left, most=most, whole=typed)
    return Plan(
        lengths, times, round(spent, 3), training.threads or 1, identity_of(training), (), costs, val, test, start
    )


def with_queries(task: Task, plan: Plan) -> Task:
    """``task`` evaluated on as many queries as the plan says."""
    wanted = {"val": plan.val_queries, "test": plan.test_queries}
    splits = {
        name: split if (most := wanted.get(name)) is None else subset(split, most)
        for name, split in task.splits.items()
    }
    return replace(task, splits=splits)


def plan_candidates(prepared: PreparedRace, request: RunRequest, arm: Arm) -> RaceStart:
    """Who takes part: the recipe's learning rate and three times it. A third rate may join at the first comparison.

    All have the K of the rule. A K that is larger and nearly free takes no part: see `negwise.jobs.race`. Nor does a
    smaller one: a race with it took time and gained nothing. But where the time has room for less than an epoch, K is
    the largest that does not make steps dear (docs/log.md). A job that resumes with more time trains its winner alone.
    """
    plan, times = prepared.plan, prepared.plan.times
    if prepared.winner is not None:
        rate, bound = prepared.winner.learning_rate, prepared.winner.max_k
        cost = next((cost.seconds for cost in plan.costs if cost.k == bound), times.step)
        known = replace(times, step=cost, k=times.k if bound is None else float(bound))
        return RaceStart((_candidate(prepared, request, arm, rate, bound, known, 1.0),), "The model so far goes on.")
    bound, reasons = None, []
    moderate = _moderate_k(plan) if request.k is None and request.steps is None else None
    if moderate is not None and _candidate(prepared, request, arm, prepared.rate, None, times, 1.0).steps < times.epoch:
        k, seconds = moderate
        slower = times.step / seconds
        reasons.append(f"K is at most {k:g}: more make a step {slower:.1f} x as long, and there is less than an epoch.")
        bound, times = int(k), replace(times, step=seconds, k=k)
    scales = (RATE_STEP, RATE_STEP * RATE_STEP, 1 / RATE_STEP)
    if may_race(request):
        share = share_of_survivor(MOST_CANDIDATES)
        first, higher, *joining = (
            _candidate(prepared, request, arm, _typed(prepared.rate * scale), bound, times, share)
            for scale in (1.0, *scales)
        )
        if rung_step(first) >= FEWEST_STEPS:
            raced = "Three times the recipe's learning rate is tried too, and nine times where that leads."
            return RaceStart((first, higher), " ".join([raced, *reasons]), tuple(joining))
        reasons.insert(0, f"There are too few steps for a race, which needs {FEWEST_STEPS} of each candidate.")
    else:
        reasons.insert(0, "There is nothing to race.")
    return RaceStart((_candidate(prepared, request, arm, prepared.rate, bound, times, 1.0),), " ".join(reasons))


def may_race(request: RunRequest) -> bool:
    """Whether learning rates may race, where there are steps enough."""
    return request.race and request.learning_rate is None


def _typed(rate: float) -> float:
    return float(f"{rate:.3g}")


def _candidate(
    prepared: PreparedRace,
    request: RunRequest,
    arm: Arm,
    rate: float,
    max_k: int | None,
    times: StepTimes,
    share: float,
) -> Candidate:
    """A candidate with the steps that it has if it goes on: ``share`` of those of a plain run in the same time."""
    steps = request.steps or prepared.most
    if request.steps is None and request.budget is not None:
        left = time_for_training(prepared.task, prepared.plan.times, spent_before(prepared.plan), request)
        plain = plan_one_run(times, runs=1, jobs=1, steps=None, budget=left, most=UNLIMITED).steps
        steps = min(int(share * plain), prepared.most)
    evaluations = evaluations_of(times, steps)
    every = -(-steps // evaluations) if share == 1 else steps_between_evaluations(steps, evaluations)
    return Candidate(arm.rule, rate, steps, every, max_k)


def time_for_training(task: Task, times: StepTimes, spent: float, request: RunRequest) -> float:
    """Seconds of the budget that are left for training: less what was ``spent`` before, and what follows."""
    assert request.budget is not None
    budget = parse_duration(request.budget)
    corpus = corpus_seconds(times, task) if task.data.name == "pairs" else 0.0
    if corpus > CORPUS_SHARE * budget:
        corpus = 0.0  # it is left out
    return budget - spent - last_seconds(budget) - corpus


def _moderate_k(plan: Plan) -> tuple[float, float] | None:
    """The largest K that was timed whose step is much shorter than that of the rule's K, and its seconds."""
    *others, largest = [cost for cost in plan.costs if cost.k <= plan.times.k]
    cheap = [(cost.k, cost.seconds) for cost in others if cost.k > 1 and DEAR * cost.seconds <= largest.seconds]
    return max(cheap) if cheap else None


def plan_horizon(
    prepared: PreparedRace, request: RunRequest, candidate: Candidate, folder: Path, seconds_so_far: float, rising: bool
) -> Horizon:
    """Steps of the candidate that goes on, from the time that is left and from its own pace.

    ``rising``: K may not have reached its largest value yet, so that steps may become as long as the plan has them.
    """
    assert request.budget is not None
    plan = prepared.plan
    left = (
        time_for_training(prepared.task, plan.times, spent_before(plan), request)
        - seconds_so_far
        - plan.times.evaluation
    )
    clock = [(record.step, record.time or 0.0) for record in read_run(folder).steps]
    half = [entry for entry in clock if entry[0] >= clock[-1][0] / 2]
    (first, begin), (last, end) = half[0], half[-1]
    measured = (end - begin) / (last - first) if last > first else 0.0
    cost = step_seconds(plan, candidate)
    pace = max(measured, cost) if rising or not measured else measured
    steps = max(min(last + int(max(left, 0.0) / pace), prepared.most), last + 1)
    reason = "the recipe's epochs" if steps == prepared.most else "what the time has room for"
    return Horizon(candidate.name, steps, round(left, 3), pace, reason, at=last)


def step_seconds(plan: Plan, candidate: Candidate) -> float:
    return next((cost.seconds for cost in plan.costs if cost.k == candidate.max_k), plan.times.step)

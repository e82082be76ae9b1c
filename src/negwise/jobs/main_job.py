"""The main job: look at the data, plan from timed steps, race, train the best candidate to the end, and show it.

A job is a folder: ``job.json`` (what was asked, what is in the data, the plan), ``race.jsonl`` (what was decided on the
way), ``runs/<candidate>/seed-<n>/``, ``results.json``, ``report.html``. The paper's way (`negwise.jobs.paper_job`) has
folders of its own. The same call again resumes from whatever is there.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from negwise.files import lock_folder
from negwise.jobs.answer_facts import add_answer_facts
from negwise.jobs.arms import Arm, parse_arm
from negwise.jobs.comparison import compare_k
from negwise.jobs.going_on import seconds_of, settle, spent_before
from negwise.jobs.paper_job import run_paper_job
from negwise.jobs.plan_in_words import explain
from negwise.jobs.preparation import Log, format_duration
from negwise.jobs.race import RaceLog, advance, race
from negwise.jobs.race_plan import (
    PreparedRace,
    plan_candidates,
    plan_horizon,
    prepare_race,
    task_of,
    time_for_training,
)
from negwise.jobs.race_progress import RaceProgress
from negwise.jobs.results import JobResult, collect_race, write_page
from negwise.jobs.single_run import default_k, fit_task, open_task, set_steps
from negwise.jobs.start_weights import learnt_from
from negwise.records import (
    BestStep,
    Candidate,
    Horizon,
    Plan,
    RaceStart,
    RunLog,
    RunResult,
    TrainingEnd,
    read_result,
)
from negwise.report.formatting import metric_name
from negwise.requests import RunRequest, TrainRequest, parse_duration
from negwise.schedule.typed_rules import SCHEDULES
from negwise.tasks import copy_task, max_negatives
from negwise.training import OpenRun, ShouldStop
from negwise.training.checkpoint import keep_best
from negwise.training.checkpoint import steps as checkpoint_steps

REPLAN = 0.45
"""The share of the steps after which the rest is planned again, by the pace so far: right before the decay begins."""
PATIENCE = 8
"""Evaluations before training may end because its metric no longer rises."""
LEFT_OVER = 0.05
"""A part of the budget that is told where the recipe ends before it."""
ENDS_EARLY = 0.7
"""The share of the steps before which it never does: scores may rise while the learning rate falls, from a half on."""


def run_job(request: RunRequest, *, log: Log = print) -> JobResult:
    """Do the whole job in the folder ``request.out``; ``log`` receives a line for each decision."""
    return run_paper_job(request, log=log) if request.method == "paper" else train_one_model(request, log=log)


def plan_job(request: RunRequest, *, log: Log = print) -> tuple[Plan, RaceStart]:
    """The plan of the main job; nothing of it is done, and nothing is left in ``request.out``."""
    arm = _arm(request)
    prepared = prepare_race(Path(request.out), request, arm, log, keep=False)
    start = plan_candidates(prepared, request, arm)
    log(explain(start, prepared, request))
    return prepared.plan, start


def train_one_model(request: RunRequest, *, log: Log = print) -> JobResult:
    """A race, and the best candidate trained to the end; then other seeds of it, each from the start."""
    began, folder, arm = time.monotonic(), Path(request.out), _arm(request)
    with lock_folder(folder, "job"):
        settle(folder, request)
        prepared = prepare_race(folder, request, arm, log)
        decisions = RaceLog(folder)
        winner: Candidate | None = None
        try:
            winner = _race(folder, request, arm, prepared, decisions)
            keep_best(folder_of(folder, winner, request.seed))
            _note_end(folder, request, prepared, winner, decisions, log)
            for seed in range(request.seed + 1, request.seed + request.seeds):
                _train_again(folder, prepared, winner, decisions, seed, log)
            compared = _compare(folder, request, prepared, winner, decisions, log)
        finally:
            notes = (*start_notes(prepared, request.seeds), *rate_notes(decisions))
            result = collect_race(
                folder, request, prepared.metrics, winner, decisions.decisions, notes, end=decisions.end
            )
        asked = prepared.request
        most = max_negatives(prepared.task.data, asked.negatives, asked.pool, asked.batch_size)
        result = add_answer_facts(result, prepared.task, compared, device=asked.device, most=most, began=began, log=log)
        write_page(folder, log)
        return result


def _arm(request: RunRequest) -> Arm:
    return parse_arm(request.k or default_k(request.negatives), "model")


def folder_of(folder: Path, candidate: Candidate, seed: int) -> Path:
    return folder / "runs" / candidate.folder / f"seed-{seed}"


def _race(folder: Path, request: RunRequest, arm: Arm, prepared: PreparedRace, decisions: RaceLog) -> Candidate:
    """The candidate that was trained to the end."""

    def place(candidate: Candidate) -> Path:
        return folder_of(folder, candidate, request.seed)

    if decisions.candidates and read_result(place(decisions.winner)) is not None:
        return decisions.winner  # it is done, and there is no bar to show
    with RaceProgress(prepared.metrics[0]) as progress:

        def start() -> RaceStart:
            found = plan_candidates(prepared, request, arm)
            progress.say(explain(found, prepared, request))
            return found

        def open_candidate(candidate: Candidate) -> AbstractContextManager[OpenRun]:
            own = request_of(prepared, candidate, in_force(decisions, place(candidate)))
            progress.expect(candidate, decisions)
            return open_task(own, copy_task(prepared.task, own), place(candidate), show=progress.of(candidate))

        def finish(candidate: Candidate, run: OpenRun) -> RunResult:
            for at, share in enumerate(replans_of(request, len(decisions.candidates) > 1)):
                own = request_of(prepared, candidate, last(decisions))
                if at < len(decisions.horizons):
                    planned = decisions.horizons[at]
                    if run.step > planned.at:  # what the run was opened with
                        continue
                    advance(run, candidate, planned.at)
                else:
                    if share:
                        every = candidate.eval_every
                        advance(run, candidate, round(share * (own.steps or 0) / every) * every)
                    so_far = sum(seconds_of(place(one)) for one in decisions.candidates)
                    planned = plan_horizon(prepared, request, candidate, place(candidate), so_far, rising=not share)
                    decisions.add(planned)
                set_steps(run, own, planned.steps)
                progress.expect(candidate, decisions)
            may_stop = may_end(request_of(prepared, candidate, last(decisions)), prepared)
            return advance(run, candidate, should_stop=may_stop)

        winner, _ = race(decisions, start, open_candidate, place, finish, prepared.metrics[0], progress.say)
    return winner


def _train_again(
    folder: Path, prepared: PreparedRace, winner: Candidate, decisions: RaceLog, seed: int, log: Log
) -> None:
    """Another seed of the candidate that won, from the start."""
    log(f"Training the same with seed {seed} ...")
    own = replace(request_of(prepared, winner, last(decisions)), seed=seed, out=str(folder_of(folder, winner, seed)))
    fit_task(own, task_of(prepared, own), str(own.out), should_stop=may_end(own, prepared))
    keep_best(Path(str(own.out)), optimizer=False)


def _compare(
    folder: Path, request: RunRequest, prepared: PreparedRace, winner: Candidate, decisions: RaceLog, log: Log
) -> dict[str, Path]:
    """The runs of ``--compare``, by a name to show."""
    result = read_result(folder_of(folder, winner, request.seed))
    assert result is not None
    own = request_of(prepared, winner, last(decisions))
    return compare_k(folder, request.other_ks, prepared, own, result.steps, decisions, log)


def _note_end(
    folder: Path, request: RunRequest, prepared: PreparedRace, winner: Candidate, decisions: RaceLog, log: Log
) -> None:
    """Put on record, and say, where training ended before its time was spent."""
    if decisions.end is None:
        result = read_result(folder_of(folder, winner, request.seed))
        assert result is not None
        spent = sum(seconds_of(folder_of(folder, one, request.seed)) for one in decisions.candidates)
        found = training_end(prepared, request, winner, decisions, result.steps, spent)
        if found is None:
            return
        decisions.add(found)
        log(end_in_words(found, prepared.metrics[0], result.best))


def training_end(
    prepared: PreparedRace, request: RunRequest, winner: Candidate, decisions: RaceLog, step: int, seconds: float
) -> TrainingEnd | None:
    """How training of the model ended at ``step``, all candidates having had ``seconds``; None where time ended it."""
    planned = request_of(prepared, winner, last(decisions)).steps or 0
    left, plan = None, prepared.plan
    if request.budget is not None:
        left = round(time_for_training(prepared.task, plan.times, spent_before(plan), request) - seconds, 3)
    if step < planned:
        return TrainingEnd(step, planned, "level", left, request.budget)
    by_recipe = request.steps is None and request.budget is not None and planned == prepared.most
    if by_recipe and left is not None and left > LEFT_OVER * parse_duration(str(request.budget)):
        return TrainingEnd(step, planned, "epochs", left, request.budget)
    return None


def end_in_words(end: TrainingEnd, metric: str, best: BestStep | None) -> str:
    """Why training ended, and what was left over."""
    if end.why == "level":
        since = "" if best is None else f" since step {best.step}"
        name = metric_name(metric)
        told = f"Training ended at step {end.step} of {end.planned}: validation {name} has not risen{since}."
    else:
        told = f"Training ended at step {end.step}, where the recipe's epochs end."
    if end.seconds_left is None:
        return told
    return f"{told} About {format_duration(max(end.seconds_left, 0.0))} of {end.budget} are left over."


def rate_notes(decisions: RaceLog) -> tuple[str, ...]:
    """What to keep in mind where the winner's learning rate is the highest or the lowest that was tried."""
    found = next((one for one in decisions.decisions if one.untried is not None), None)
    if found is None or found.untried is None:
        return ()
    rate = decisions.winner.learning_rate
    how = "highest" if found.untried > rate else "lowest"
    more = "higher" if found.untried > rate else "lower"
    return (
        f"Learning rate {rate:g}, the {how} that was tried, won the race. A {more} one was not tried: "
        f"--learning-rate {found.untried:g}.",
    )


def start_notes(prepared: PreparedRace, seeds: int) -> tuple[str, ...]:
    """What to keep in mind of a model that did not start from random weights."""
    older, data = prepared.older, prepared.task.data
    if older is None:
        return ()
    found = []
    if any(one != f"{data.digest}, split {data.split}" for one in learnt_from(older.record)):
        found.append(
            "The weights at the start learnt from other data, or from another split. If some of the test queries were "
            "in it, the scores are too high."
        )
    if seeds > 1:
        found.append("All seeds start from the same weights, so their spread is too small.")
    return tuple(found)


def replans_of(request: RunRequest, raced: bool) -> tuple[float, ...]:
    """Shares of the steps after which the time that is left is planned again: after the race, and before the decay.

    None for a schedule of K, which follows from the number of steps that it began with.
    """
    scheduled = (request.k or "").strip().lower().split(":")[0] in SCHEDULES
    if request.budget is None or request.steps is not None or scheduled:
        return ()
    return (0.0, REPLAN) if raced else (REPLAN,)


def may_end(request: TrainRequest, prepared: PreparedRace) -> ShouldStop:
    """When a run of ``request`` ends before its last step."""
    return partial(no_longer_rises, metric=prepared.metrics[0], least=ENDS_EARLY * (request.steps or 0))


def no_longer_rises(log: RunLog, metric: str, least: float = 0.0) -> bool:
    """Whether the best of at least `PATIENCE` evaluations lies in the first half of the steps so far."""
    found = [(record.value(metric) or 0.0, -record.step, record.step) for record in log.of_split("val")]
    return len(found) > PATIENCE and found[-1][2] >= least and 2 * max(found)[2] <= found[-1][2]


def last(decisions: RaceLog) -> Horizon | None:
    return decisions.horizons[-1] if decisions.horizons else None


def in_force(decisions: RaceLog, run: Path) -> Horizon | None:
    """The horizon that a run had where it stands: one that was planned later changes no step before it."""
    step = max(checkpoint_steps(run), default=0)
    return next((one for one in reversed(decisions.horizons) if one.at < step), None)


def request_of(prepared: PreparedRace, candidate: Candidate, horizon: Horizon | None) -> TrainRequest:
    """What a candidate trains; warm-up is that of its first plan, whatever its horizon becomes."""
    steps = candidate.steps if horizon is None or horizon.candidate != candidate.name else horizon.steps
    bounds = [bound for bound in (prepared.request.max_k, candidate.max_k) if bound is not None]
    return replace(
        prepared.request,
        k=candidate.rule,
        learning_rate=candidate.learning_rate,
        steps=steps,
        eval_every=candidate.eval_every,
        warmup=min(prepared.request.warmup or 0, candidate.steps // 10),
        max_k=min(bounds, default=None),
    )

"""How long to train: from a few timed steps on this machine, and from the budget."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from negwise.datasets import Source
from negwise.errors import InputError
from negwise.jobs.single_run import fit_task
from negwise.metrics.model_ranking import EvaluationSplit
from negwise.records import RunLengths, StepTimes, read_run
from negwise.requests import TrainRequest
from negwise.tasks import Task, evaluate_model, evaluation_splits, make_task

PILOT_SHARE = 0.3
"""Of the budget. A pilot that converges sooner leaves its rest unused."""
SLOWER = 1.3
"""Runs side by side, and what is not steps, take this much longer than a run alone."""
START = 8.0
"""Seconds for a process to start and to open the data."""
PILOT_EVALUATIONS, EVALUATIONS = 12, 8
FEWEST = 2 * PILOT_EVALUATIONS
STEPS = 1000
"""Steps of a run where neither a budget nor a number of steps is given."""


def time_steps(request: TrainRequest, source: Source | None, steps: int) -> StepTimes:
    """Seconds of a step with the K of ``request`` and with K = 1 (medians), and of evaluating one split and both."""
    task = make_task(request, source)
    step, pilot_step = (_step_seconds(replace(request, k=k), task, steps) for k in (request.k, "1"))
    splits = evaluation_splits(task.data, request.queries)
    val, train = (_evaluation_seconds(task.model, splits[name]) for name in ("val", "train"))
    return StepTimes(step=step, evaluation=val, pilot_step=pilot_step, pilot_evaluation=val + train)


def _step_seconds(request: TrainRequest, task: Task, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        short = replace(request, steps=steps, eval_every=steps)
        fit_task(short, replace(task, splits={}), Path(folder), show=False)
        times = [record.time or 0.0 for record in read_run(folder).steps]
    spent = [after - before for before, after in itertools.pairwise(times)]
    # The second half: on a GPU the first steps of each size compile and record.
    return median(spent[len(spent) // 2 :])


def _evaluation_seconds(model: Any, split: EvaluationSplit) -> float:
    began = time.perf_counter()
    evaluate_model(model, split)
    return time.perf_counter() - began


def parallelism(jobs: int | None, device: str, runs: int) -> tuple[int, int]:
    """How many runs at a time, and threads of each: on a CPU one run a core; on a GPU one unless asked.

    OMP_NUM_THREADS, where it is set, bounds the threads of a run: other work shares this machine then.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: got {jobs}, expected 1 or more.")
    side_by_side = jobs or (1 if device == "cuda" else min(cores, runs))
    bound = os.environ.get("OMP_NUM_THREADS", "")
    most = int(bound) if bound.isdecimal() and int(bound) else cores
    return side_by_side, max(1, min(most, cores // side_by_side))


def plan_lengths(
    times: StepTimes, *, runs: int, jobs: int, steps: int | None, budget: float | None, pilot: bool = True
) -> RunLengths:
    """Steps as asked for, or as many as the budget has room for.

    The pilot may take 30% of the budget, or what the shortest one needs where that is more and the runs have room left;
    the rest is shared by ``runs`` runs of the same length, ``jobs`` at a time.
    Without a budget the pilot may take twice the steps of a run, should its training AUC still rise.
    """
    if budget is None:
        length = steps or STEPS
        most = 2 * length
    else:
        shortest_runs = run_seconds(times, runs, jobs, steps or FEWEST)
        shortest = SLOWER * (FEWEST * times.pilot_step + _pilot_evaluations(times)) + START if pilot else 0.0
        need = shortest + shortest_runs
        if budget < need:
            what = f"{runs} runs{' and a pilot' if pilot else ''} of {steps or FEWEST} steps"
            raise InputError(
                f"budget: {budget:.0f} s is too short. Here {what} need about {need:.0f} s ({times.step:.2g} s a step, "
                f"{times.pilot_evaluation:.2g} s an evaluation of the pilot). Ask for more time, shorten evaluations "
                "with --queries, or train one arm only with --no-compare."
            )
        first = min(max(PILOT_SHARE * budget, shortest), budget - shortest_runs) if pilot else 0.0
        length = steps or max(FEWEST, fitting_steps(times, runs, jobs, budget - first))
        most = max(FEWEST, _fitting_pilot_steps(times, length, first))
    likely = min(most, length)
    seconds = run_seconds(times, runs, jobs, length)
    if pilot:
        seconds += SLOWER * (likely * times.pilot_step + _pilot_evaluations(times)) + START
    return RunLengths(most, _every(likely), length, round(seconds, 1), jobs)


def fitting_steps(times: StepTimes, runs: int, jobs: int, seconds: float) -> int:
    """Steps of each of ``runs`` runs, ``jobs`` at a time, that ``seconds`` have room for; 0 or more."""
    each = (seconds - START) / -(-runs // jobs) / SLOWER - _evaluations(times)
    return max(0, int(each / times.step))


def run_seconds(times: StepTimes, runs: int, jobs: int, steps: int) -> float:
    """How long ``runs`` runs of ``steps`` steps take, ``jobs`` at a time."""
    return -(-runs // jobs) * SLOWER * (steps * times.step + _evaluations(times)) + START


def slowed_by_pilot(times: StepTimes, plan: RunLengths, steps: int, seconds: float) -> StepTimes:
    """``times``, slowed down where the pilot, whose ``steps`` took ``seconds``, was slower than that."""
    evaluations = steps // plan.pilot_eval_every + 1
    expected = steps * times.pilot_step + evaluations * times.pilot_evaluation + times.evaluation
    slower = max(1.0, seconds / (SLOWER * expected))
    return StepTimes(**{name: slower * value for name, value in asdict(times).items()})


def _fitting_pilot_steps(times: StepTimes, length: int, seconds: float) -> int:
    """Steps of a pilot that ``seconds`` have room for; beyond ``length`` it is evaluated as often as before."""
    room = (seconds - START) / SLOWER - times.evaluation - times.pilot_evaluation
    most = max(0, int((room - PILOT_EVALUATIONS * times.pilot_evaluation) / times.pilot_step))
    if most <= length:
        return most
    return max(
        length, int((room - times.pilot_evaluation) / (times.pilot_step + times.pilot_evaluation / _every(length)))
    )


def _every(steps: int) -> int:
    """Steps between evaluations of a pilot that is likely to take ``steps``."""
    return -(-steps // PILOT_EVALUATIONS)


def _evaluations(times: StepTimes) -> float:
    return (EVALUATIONS + 2) * times.evaluation  # one more at the start, and the test split at the end


def _pilot_evaluations(times: StepTimes) -> float:
    return (PILOT_EVALUATIONS + 1) * times.pilot_evaluation + times.evaluation

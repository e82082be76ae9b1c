"""How long to train: from a few timed steps on this machine, and from the budget."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from negwise.datasets import Source
from negwise.errors import InputError
from negwise.jobs.single_run import fit_task, make_rule
from negwise.metrics.model_ranking import EvaluationSplit, subset
from negwise.protocols import OpenLoopRule, Rule
from negwise.records import RunLengths, StepCost, StepTimes, read_run
from negwise.requests import TrainRequest
from negwise.schedule import ConstantK, FunctionK, OnlineK
from negwise.stages import stage
from negwise.tasks import Task, copy_task, evaluate_model, evaluation_splits, make_task, with_recipe
from negwise.tasks.recipes import resolve_device
from negwise.tasks.task import no_assets
from negwise.training import EpochOrder

PILOT_SHARE = 0.3
"""Of the budget. A pilot that converges sooner leaves its rest unused."""
SLOWER, ALONE = 1.3, 1.05
"""Runs side by side, and one alone with what is not steps, take this much longer than timed steps."""
EVALUATION_SHARE, FEWEST_EVALUATIONS, MOST_EVALUATIONS = 0.1, 5, 20
"""Of one run: evaluations may take a tenth of the time of its steps."""
FEWEST_QUERIES = 500
RISING = 200
"""Steps over which a K that is set while training rises: so far about 150 on texts. They cost the mean of both ends."""
WITHOUT_A_BOUND = 128.0
"""The K that is timed for a rule whose K has no bound but the data: about where K for information was so far."""
START = 8.0
"""Seconds for a process to start and to open the data."""
TIMED_KS = (1.0, 20.0, 100.0)
"""K whose step is timed, beside the largest that may come."""
STEPS_OF_A_COST = {"cpu": 3, "cuda": 16}
FIRST_QUERIES, TIMED_QUERIES = 50, 500
"""Queries of an evaluation before the one that is timed, since the first may compile; and of the one that is timed.
More are counted on in proportion."""
LAST, LAST_SHARE, CORPUS_SHARE = 8.0, 0.08, 0.05
"""Seconds for what follows one run, baselines and the page, and the share of the budget where that is less; and the
share of the budget that ranking texts among the whole corpus may take."""
PILOT_EVALUATIONS, EVALUATIONS = 12, 8
FEWEST = 2 * PILOT_EVALUATIONS
STEPS = 1000
"""Steps of a run where neither a budget nor a number of steps is given."""


def time_steps(request: TrainRequest, source: Source | None, steps: int) -> StepTimes:
    """Seconds of a step with the K of ``request`` and with K = 1 (medians), and of evaluating one split and both.

    Of a rule that moves K, the largest K that it may come to is timed. Where that does not fit into memory, half of it
    is tried, and so on.
    """
    request = with_recipe(request)
    task = make_task(request, source)
    k = largest_k(make_rule(request, task))
    step, fitting = _largest_fitting(request, task, steps, k)
    pilot_step = _step_seconds(replace(request, k="1"), task, steps)
    splits = evaluation_splits(task.data, request.queries)
    val, train = (_evaluation_seconds(task.model, splits[name]) for name in ("val", "train"))
    assert request.batch_size is not None
    return StepTimes(
        step=step,
        evaluation=val,
        pilot_step=pilot_step,
        pilot_evaluation=val + train,
        k=fitting,
        epoch=EpochOrder(len(task.examples), request.batch_size, request.seed).steps_per_epoch,
        max_k=None if fitting == k else int(fitting),
    )


@stage("timing steps")
def time_one_run(request: TrainRequest, task: Task) -> tuple[StepTimes, tuple[StepCost, ...]]:
    """`time_steps` for one run of ``task``, whose weights stay as they are, and what a step costs at several K."""
    rule = make_rule(request, task)
    k = largest_k(rule)
    costs = step_costs(request, task, [known for known in TIMED_KS if known < k] + [k])
    model = copy_task(task, request).model.to(resolve_device(request.device))  # ``task`` itself stays on the CPU
    evaluation = _evaluation_seconds(model, task.splits["val"])
    assert request.batch_size is not None
    times = StepTimes(
        step=costs[-1].seconds,
        evaluation=evaluation,
        pilot_step=costs[-1 if isinstance(rule, ConstantK) else 0].seconds,  # where K starts
        pilot_evaluation=2 * evaluation,
        k=costs[-1].k,
        epoch=EpochOrder(len(task.examples), request.batch_size, request.seed).steps_per_epoch,
        max_k=None if costs[-1].k == k else int(costs[-1].k),
    )
    return times, costs


def step_costs(request: TrainRequest, task: Task, ks: Sequence[float]) -> tuple[StepCost, ...]:
    """Seconds of a step at each of ``ks``, which rise. Where one does not fit into memory, half of it is tried."""
    left = list(ks)
    while True:
        try:
            return _timed(request, copy_task(task, request), left)
        except RuntimeError as error:
            if left[-1] < 2 or not _out_of_memory(error):
                raise
        largest = left.pop()
        if not left or largest / 2 > left[-1]:
            left.append(float(int(largest / 2)))


def _timed(request: TrainRequest, task: Task, ks: Sequence[float]) -> tuple[StepCost, ...]:
    """One short run in which K goes through ``ks``."""
    each = STEPS_OF_A_COST[resolve_device(request.device)]
    steps = each * len(ks)
    rule = FunctionK(lambda fraction: ks[round(fraction * (steps - 1)) // each])
    with tempfile.TemporaryDirectory() as folder:
        short = replace(request, k=None, steps=steps, epochs=None, eval_every=steps)
        fit_task(short, replace(task, splits={}, assets=no_assets), Path(folder), rule=rule, show=False)
        clock = [record.time or 0.0 for record in read_run(folder).steps]
    spent = [after - before for before, after in itertools.pairwise([0.0, *clock])]
    # Of the later half, since the first steps of a size may compile. The shortest quarter: others may be disturbed.
    quarter = max(each // 4, 1)
    firsts = range((each + 1) // 2, each - quarter + 1, quarter)
    return tuple(
        StepCost(k, min(sum(spent[each * at + first :][:quarter]) for first in firsts) / quarter)
        for at, k in enumerate(ks)
    )


def largest_k(rule: Rule) -> float:
    """The largest K that ``rule`` is likely to come to."""
    if isinstance(rule, OnlineK):
        return rule.known_bound if rule.candidates is not None else min(rule.known_bound, WITHOUT_A_BOUND)
    if isinstance(rule, OpenLoopRule):
        return max(rule(step / 20) for step in range(21))
    return WITHOUT_A_BOUND


def _largest_fitting(request: TrainRequest, task: Task, steps: int, k: float) -> tuple[float, float]:
    """Seconds of a step with the largest of K, K / 2, K / 4, ... that fits into memory, and that K."""
    while True:
        try:
            return _step_seconds(replace(request, k=f"{k:g}"), task, steps), k
        except RuntimeError as error:
            if k < 2 or not _out_of_memory(error):
                raise
        k = float(int(k / 2))


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def evaluations_of(times: StepTimes, steps: int) -> int:
    """Evaluations of one run of ``steps`` steps: a tenth of its time, but 5 to 20."""
    affordable = EVALUATION_SHARE * steps * times.step / max(times.evaluation, 1e-9)
    return int(min(max(affordable, FEWEST_EVALUATIONS), MOST_EVALUATIONS, steps))


def _step_seconds(request: TrainRequest, task: Task, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        short = replace(request, steps=steps, epochs=None, eval_every=steps)
        fit_task(short, replace(task, splits={}, assets=no_assets), Path(folder), show=False)
        times = [record.time or 0.0 for record in read_run(folder).steps]
    spent = [after - before for before, after in itertools.pairwise(times)]
    # The second half: on a GPU the first steps of each size compile and record.
    return median(spent[len(spent) // 2 :])


def _evaluation_seconds(model: Any, split: EvaluationSplit) -> float:
    queries = len(split.query_examples)
    evaluate_model(model, subset(split, min(queries, FIRST_QUERIES)))
    few = subset(split, min(queries, TIMED_QUERIES))
    began = time.perf_counter()
    evaluate_model(model, few)
    return (time.perf_counter() - began) * queries / len(few.query_examples)


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
                "with --queries, or train one arm only with --compare none."
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
    each = (seconds - START) / -(-runs // jobs) / _slower(jobs) - _evaluations(times)
    return max(0, int(each / times.step))


def run_seconds(times: StepTimes, runs: int, jobs: int, steps: int) -> float:
    """How long ``runs`` runs of ``steps`` steps take, ``jobs`` at a time."""
    return -(-runs // jobs) * _slower(jobs) * (steps * times.step + _evaluations(times)) + START


def fair_queries(queries: int, seconds: float, evaluations: int, room: float | None) -> int | None:
    """Queries of which ``evaluations`` fit into ``room`` seconds, where all of them take ``seconds`` each time.

    None where all fit. At least 500, below which little is told.
    """
    if room is None or evaluations * seconds <= room or queries <= FEWEST_QUERIES:
        return None
    return max(FEWEST_QUERIES, int(queries * room / (evaluations * seconds)))


def plan_one_run(
    times: StepTimes, *, runs: int, jobs: int, steps: int | None, budget: float | None, most: int
) -> RunLengths:
    """Steps as asked for; else as many as ``budget`` seconds of training have room for, and at most ``most``.

    ``most`` is where the recipe ends. Each of ``runs`` seeds has the whole budget.
    """
    if steps is None and budget is None:
        steps = most
    if steps is None:
        assert budget is not None
        tests = 2 * times.evaluation  # the one at the start, and the test split at the end
        room = (budget / _slower(jobs) - tests) / (1 + EVALUATION_SHARE)
        fitting = int((room + _saved(times, RISING)) / times.step)
        if fitting < RISING:
            fitting = int(room / (times.step - _saved(times, 1)))
        if fitting < FEWEST:
            need = _slower(jobs) * (FEWEST * (1 + EVALUATION_SHARE) * times.step + tests)
            raise InputError(
                f"budget: too short. {max(budget, 0.0):.0f} s are left for training, and {FEWEST} steps "
                f"need about {need:.0f} s ({times.step:.2g} s a step, {times.evaluation:.2g} s an evaluation). Ask for "
                "more time, or evaluate on fewer queries with --queries."
            )
        steps = min(fitting, most)
    evaluations = evaluations_of(times, steps) + 2
    training = steps * times.step - _saved(times, steps)
    seconds = -(-runs // jobs) * _slower(jobs) * (training + evaluations * times.evaluation) + LAST
    return RunLengths(0, 1, steps, round(seconds, 1), jobs)


def last_seconds(budget: float) -> float:
    """Seconds of ``budget`` for what follows training: baselines and the page."""
    return min(LAST, LAST_SHARE * budget)


def _saved(times: StepTimes, steps: int) -> float:
    """Seconds that the first steps take less than the later ones, while K rises."""
    return min(steps, RISING) * max(times.step - times.pilot_step, 0.0) / 2


def _slower(jobs: int) -> float:
    return SLOWER if jobs > 1 else ALONE


def slowed_by_pilot(times: StepTimes, plan: RunLengths, steps: int, seconds: float) -> StepTimes:
    """``times``, slowed down where the pilot, whose ``steps`` took ``seconds``, was slower than that."""
    evaluations = steps // plan.pilot_eval_every + 1
    expected = steps * times.pilot_step + evaluations * times.pilot_evaluation + times.evaluation
    slower = max(1.0, seconds / (SLOWER * expected))
    seconds_of = ("step", "evaluation", "pilot_step", "pilot_evaluation")
    return replace(times, **{name: slower * getattr(times, name) for name in seconds_of})


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

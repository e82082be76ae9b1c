"""What a step and an evaluation cost here: a few real steps at several K, and the largest K that fits into memory."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from negwise.datasets import Source
from negwise.jobs.single_run import fit_task, make_rule, open_task
from negwise.metrics.model_ranking import EvaluationSplit, subset
from negwise.protocols import OpenLoopRule, Rule
from negwise.records import Plan, StepCost, StepTimes, read_run
from negwise.requests import TrainRequest
from negwise.schedule import ConstantK, FunctionK, OnlineK
from negwise.stages import stage
from negwise.tasks import (
    Task,
    copy_task,
    evaluate_model,
    evaluation_splits,
    make_task,
    max_negatives,
    with_recipe,
)
from negwise.tasks.recipes import resolve_device
from negwise.tasks.task import no_assets
from negwise.training import EpochOrder, OpenRun

WITHOUT_A_BOUND = 128.0
"""The K that is timed for a rule whose K has no bound but the data: about where K for information was so far."""
TIMED_KS, LARGER_KS = (1.0, 20.0, 100.0), (300.0, 1000.0)
"""K whose step is timed beside the largest that may come; and larger ones, as far as that is quick."""
STEPS_OF_A_COST, STEPS_OF_A_LARGER = {"cpu": 3, "cuda": 16}, {"cpu": 2, "cuda": 8}
ENOUGH_SECONDS, SLOW_SECONDS = 0.4, 2.0
"""On a CPU, where nothing compiles, steps that took so long are enough to know a K by, if there are two: the first with
a new K asks the system for memory. A step so slow is enough alone."""
LARGER_SECONDS, LARGER_SHARE = 4.0, 0.03
"""Seconds that timing larger K may take, and the share of the budget where that is less."""
DEAREST, FURTHEST = 3.0, 20.0
"""No K is timed after one whose step takes so many times the shortest, nor one so many times the K before it."""
FREE = 1.1
"""A K is nearly free whose step takes at most so many times as long as the shortest."""
FIRST_QUERIES, TIMED_QUERIES = 50, 500
"""Queries of an evaluation before the one that is timed, since the first may compile; and of the one that is timed.
More are counted on in proportion."""


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
def time_one_run(
    request: TrainRequest, task: Task, budget: float | None = None
) -> tuple[StepTimes, tuple[StepCost, ...]]:
    """`time_steps` for one run of ``task``, whose weights stay as they are, and what a step costs at several K."""
    rule = make_rule(request, task)
    k = largest_k(rule)
    most = float(max_negatives(task.data, request.negatives, request.pool, request.batch_size))
    larger = sorted({known for known in (*TIMED_KS, *LARGER_KS, most) if k < known <= most})
    room = LARGER_SECONDS if budget is None else min(LARGER_SECONDS, LARGER_SHARE * budget)
    costs = step_costs(request, task, [known for known in TIMED_KS if known < k] + [k], larger, room)
    own = [cost for cost in costs if cost.k <= k]
    model = copy_task(task, request).model.to(resolve_device(request.device))  # ``task`` itself stays on the CPU
    evaluation = _evaluation_seconds(model, task.splits["val"])
    assert request.batch_size is not None
    times = StepTimes(
        step=own[-1].seconds,
        evaluation=evaluation,
        pilot_step=own[-1 if isinstance(rule, ConstantK) else 0].seconds,  # where K starts
        pilot_evaluation=2 * evaluation,
        k=own[-1].k,
        epoch=EpochOrder(len(task.examples), request.batch_size, request.seed).steps_per_epoch,
        max_k=None if own[-1].k == k else int(own[-1].k),
    )
    return times, costs


def step_costs(
    request: TrainRequest, task: Task, ks: Sequence[float], larger: Sequence[float] = (), room: float = LARGER_SECONDS
) -> tuple[StepCost, ...]:
    """Seconds of a step at each of ``ks``, which rise. Where one does not fit into memory, half of it is tried.

    Then at ``larger`` K, until that would take more than ``room`` seconds, a step is dear, or memory ends.
    """
    left = list(ks)
    while True:
        try:
            return _timed(request, copy_task(task, request), left, larger, room)
        except RuntimeError as error:
            if left[-1] < 2 or not out_of_memory(error):
                raise
        larger, largest = (), left.pop()
        if not left or largest / 2 > left[-1]:
            left.append(float(int(largest / 2)))


def _timed(
    request: TrainRequest, task: Task, ks: Sequence[float], larger: Sequence[float], room: float
) -> tuple[StepCost, ...]:
    """One short run in which K goes through ``ks`` and then as far as it may through ``larger``."""
    device = resolve_device(request.device)
    each, few = STEPS_OF_A_COST[device], STEPS_OF_A_LARGER[device]
    now = {"k": ks[0]}
    most_steps = 2 + each * len(ks) + few * len(larger)
    short = replace(request, k=None, steps=most_steps, epochs=None, eval_every=most_steps)
    bare, rule = replace(task, splits={}, assets=no_assets), FunctionK(lambda _: now["k"])
    found: list[StepCost] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_task(short, bare, folder, rule=rule, show=False, checkpoints=False) as run,
    ):
        with stage("the first step, which may compile"):
            run.advance(1)  # which is slower than all others
        for k in ks:
            now["k"] = k
            found.append(StepCost(k, shortest(_spent(run, Path(folder), each, device))))
        least = min(cost.seconds for cost in found)
        for k in larger:
            if few * extended(found, k) > room or k > FURTHEST * found[-1].k or found[-1].seconds > DEAREST * least:
                break
            now["k"] = k
            try:
                spent = _spent(run, Path(folder), few, device)
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise
                break
            found.append(StepCost(k, shortest(spent)))
            room -= sum(spent)
    return undisturbed(found)


def undisturbed(costs: Sequence[StepCost]) -> tuple[StepCost, ...]:
    """``costs``, whose K rise, without disturbances: a step does no more work than one with more negatives."""
    least = [*itertools.accumulate((cost.seconds for cost in reversed(costs)), min)]
    return tuple(replace(cost, seconds=seconds) for cost, seconds in zip(costs, reversed(least), strict=True))


def _spent(run: OpenRun, folder: Path, steps: int, device: str) -> list[float]:
    """Seconds of each of so many steps; on a CPU of fewer where they are slow."""
    before = run.step
    if device == "cpu":
        run.advance(before + 1)
        (first,) = _seconds(folder, before)
        if first >= SLOW_SECONDS:
            return [first]
        steps = steps if steps * first < ENOUGH_SECONDS else 2
    run.advance(before + steps)
    return _seconds(folder, before)


def _seconds(folder: Path, step: int) -> list[float]:
    """Seconds of each step after ``step``, which is 1 at least."""
    clock = [record.time or 0.0 for record in read_run(folder).steps[step - 1 :]]
    return [after - before for before, after in itertools.pairwise(clock)]


def shortest(spent: Sequence[float]) -> float:
    """Seconds of a step: of the later half, since the first steps of a size may compile, and of that the shortest
    quarter, since others may be disturbed."""
    quarter = max(len(spent) // 4, 1)
    firsts = range(min((len(spent) + 1) // 2, len(spent) - quarter), len(spent) - quarter + 1, quarter)
    return min(sum(spent[first:][:quarter]) for first in firsts) / quarter


def extended(costs: Sequence[StepCost], k: float) -> float:
    """Seconds of a step with a larger ``k``: on the line through the last two costs, which does not fall."""
    last, before = costs[-1], costs[-2 if len(costs) > 1 else -1]
    slope = (last.seconds - before.seconds) / (last.k - before.k) if last.k > before.k else 0.0
    return last.seconds + max(slope, 0.0) * (k - last.k)


def costs_in_words(plan: Plan) -> str:
    """What a step takes at each K, and which K is nearly free."""
    costs = ", ".join(f"{_milliseconds(cost.seconds)} with {_number(cost.k)}" for cost in plan.costs)
    memory = "; more negatives do not fit into memory" if plan.times.max_k is not None else ""
    return f"{costs} negatives{memory}. {free_in_words(plan)}"


def free_in_words(plan: Plan) -> str:
    """The largest K of those that were timed whose step takes at most a tenth more time than the shortest."""
    least = min(cost.seconds for cost in plan.costs)
    k = max(cost.k for cost in plan.costs if cost.seconds <= FREE * least)
    largest = ", the largest that was timed," if k == plan.costs[-1].k else ""
    if k > plan.costs[0].k:
        return f"Negatives are nearly free up to K = {_number(k)}{largest.rstrip(',')}."
    return "Each negative costs time."


def _number(k: float) -> str:
    return f"{k:,.0f}" if k >= 10 else f"{k:.3g}"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def largest_k(rule: Rule) -> float:
    """The largest K that ``rule`` is likely to come to."""
    if isinstance(rule, OnlineK):
        return rule.known_bound if rule.candidates is not None else min(rule.known_bound, WITHOUT_A_BOUND)
    if isinstance(rule, OpenLoopRule):
        return max(rule(step / 20) for step in range(21))
    return WITHOUT_A_BOUND


def out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that the memory of the GPU, or of the machine, was used up."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _largest_fitting(request: TrainRequest, task: Task, steps: int, k: float) -> tuple[float, float]:
    """Seconds of a step with the largest of K, K / 2, K / 4, ... that fits into memory, and that K."""
    while True:
        try:
            return _step_seconds(replace(request, k=f"{k:g}"), task, steps), k
        except RuntimeError as error:
            if k < 2 or not out_of_memory(error):
                raise
        k = float(int(k / 2))


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

"""How long to train, from what a step and an evaluation cost here, and from the budget."""

from __future__ import annotations

import os
from dataclasses import replace

from negwise.errors import InputError
from negwise.records import RunLengths, StepTimes
from negwise.report.undertrained import budget_text
from negwise.tasks import Task

PILOT_SHARE = 0.3
"""Of the budget. A pilot that converges sooner leaves its rest unused."""
SLOWER, ALONE = 1.3, 1.05
"""Runs side by side, and one alone with what is not steps, take this much longer than timed steps."""
EVALUATION_SHARE, AIMED_SHARE = 0.1, 0.05
"""Of one run: evaluations may take a tenth of the time of its steps, and do where that is what the fewest take. More
than those are made only where all of them take half of that."""
FEWEST_EVALUATIONS, MOST_EVALUATIONS = 5, 20
FEWEST_QUERIES = 500
RACE_EVALUATIONS, RACE_QUERIES = 24, 2000
"""A race looks at 8, 16 and 24% of a candidate's steps if it is evaluated 12 times, which has about half of the time.
To make evaluations cheap enough it does with fewer queries, but not with fewer than so many."""
RISING = 200
"""Steps over which a K that is set while training rises: so far about 150 on texts. They cost the mean of both ends."""
START = 8.0
"""Seconds for a process to start and to open the data."""
LAST, LAST_SHARE, CORPUS_SHARE = 8.0, 0.05, 0.05
"""Seconds for what follows one run, baselines and the page, and the share of the budget where that is less; and the
share of the budget that ranking texts among the whole corpus may take."""
PILOT_EVALUATIONS, EVALUATIONS = 12, 8
FEWEST = 2 * PILOT_EVALUATIONS
STEPS = 1000
"""Steps of a run where neither a budget nor a number of steps is given."""


def evaluations_of(times: StepTimes, steps: int) -> int:
    """Evaluations of one run of ``steps`` steps: a twentieth of its time, but 5 to 20."""
    affordable = AIMED_SHARE * steps * times.step / max(times.evaluation, 1e-9)
    return int(min(max(affordable, FEWEST_EVALUATIONS), MOST_EVALUATIONS, steps))


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
                f"{times.pilot_evaluation:.2g} s an evaluation of the pilot). Ask for more time with a larger "
                "--budget, or train one arm only with --compare none."
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


def fair_queries(
    queries: int, seconds: float, evaluations: int, room: float | None, least: int = FEWEST_QUERIES
) -> int | None:
    """Queries of which ``evaluations`` fit into ``room`` seconds, where all of them take ``seconds`` each time.

    None where all fit. At least ``least``; below 500 little is told.
    """
    if room is None or evaluations * seconds <= room or queries <= least:
        return None
    return max(least, int(queries * room / (evaluations * seconds)))


def validation_queries(queries: int, seconds: float, left: float | None, races: bool) -> int | None:
    """How many of the ``queries``, which take ``seconds``, to validate on in ``left`` seconds of training; None: all.

    ``races``: whether a race wants to look often.
    """
    if left is None:
        return None
    needed = fair_queries(queries, seconds, FEWEST_EVALUATIONS + 1, EVALUATION_SHARE * left)
    if not races:
        return needed
    cheap = fair_queries(queries, seconds, RACE_EVALUATIONS, AIMED_SHARE * left, RACE_QUERIES)
    return min((one for one in (needed, cheap) if one is not None), default=None)


def plan_one_run(
    times: StepTimes,
    *,
    runs: int,
    jobs: int,
    steps: int | None,
    budget: float | None,
    most: int,
    whole: float | None = None,
) -> RunLengths:
    """Steps as asked for; else as many as ``budget`` seconds of training have room for, and at most ``most``.

    ``most`` is where the recipe ends. Each of ``runs`` seeds has the whole budget. ``whole`` is what was typed, with
    what comes before training and after it.
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
            enough = (budget if whole is None else whole) + (need - budget) / (1 - LAST_SHARE - CORPUS_SHARE)
            raise InputError(
                f"budget: too short. Loading, reading, timing and the page leave {max(budget, 0.0):.0f} s for "
                f"training, and {FEWEST} steps need about {need:.0f} s ({times.step:.2g} s a step, "
                f"{times.evaluation:.2g} s an evaluation). Type --budget {budget_text(enough)} or more. The next try "
                "may need less, because what was read and compiled is kept."
            )
        steps = min(fitting, most)
    evaluations = evaluations_of(times, steps) + 2
    training = steps * times.step - _saved(times, steps)
    seconds = -(-runs // jobs) * _slower(jobs) * (training + evaluations * times.evaluation) + LAST
    return RunLengths(0, 1, steps, round(seconds, 1), jobs)


def corpus_seconds(times: StepTimes, task: Task) -> float:
    """About how long it takes to rank among all texts: an evaluation with all of them as candidates."""
    first, last = task.data.val.candidates
    return times.evaluation * task.data.n_items / max(last - first, 1)


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

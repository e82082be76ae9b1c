"""How long to train: from a few real steps and the time there is."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass

from negwise.errors import InputError

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

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Pace:
    """Seconds of a step and of an evaluation; of a step with K = 1 and of an evaluation of both splits, as in a pilot.

    With texts a step with K = 1 reads fewer of them, and takes half the time of one with K = 20.
    """

    step: float
    evaluation: float
    pilot_step: float
    pilot_evaluation: float


@dataclass(frozen=True)
class Plan:
    """Steps of the pilot at most and between its evaluations, steps of every other run, seconds for all of it, and
    the runs at a time that this counts on."""

    pilot_steps: int
    pilot_eval_every: int
    steps: int
    seconds: float
    jobs: int


def seconds_of(text: str) -> float:
    """``"90"``, ``"90s"``, ``"10m"``, ``"1.5h"`` or ``"1h30m"`` in seconds."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if not parts or "".join(number + unit for number, unit in parts) != text.strip().lower():
        raise InputError(f"budget: got {text!r}, expected a time such as 90s, 10m or 1.5h.")
    total = sum(float(number) * _UNITS[unit or "s"] for number, unit in parts)
    if total <= 0:
        raise InputError(f"budget: got {text!r}, expected more than 0 seconds.")
    return total


def spread(jobs: int | None, device: str, cells: int) -> tuple[int, int]:
    """How many runs at a time, and threads of each: on a CPU one run a core; on a GPU one unless asked.

    OMP_NUM_THREADS, where it is set, bounds the threads of a run: other work shares this machine then.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs: got {jobs}, expected 1 or more.")
    side_by_side = jobs or (1 if device == "cuda" else min(cores, cells))
    bound = os.environ.get("OMP_NUM_THREADS", "")
    most = int(bound) if bound.isdecimal() and int(bound) else cores
    return side_by_side, max(1, min(most, cores // side_by_side))


def make_plan(
    pace: Pace, *, cells: int, jobs: int, steps: int | None, budget: float | None, pilot: bool = True
) -> Plan:
    """Steps as asked for, or as many as the budget has room for.

    The pilot may take 30% of the budget, or what the shortest one needs where that is more and the runs have room left;
    the rest is shared by ``cells`` runs of the same length, ``jobs`` at a time.
    Without a budget the pilot may take twice the steps of a run, should its training AUC still rise.
    """
    if budget is None:
        length = steps or STEPS
        most = 2 * length
    else:
        runs = run_seconds(pace, cells, jobs, steps or FEWEST)
        shortest = SLOWER * (FEWEST * pace.pilot_step + _pilot_evaluations(pace)) + START if pilot else 0.0
        need = shortest + runs
        if budget < need:
            what = f"{cells} runs{' and a pilot' if pilot else ''} of {steps or FEWEST} steps"
            raise InputError(
                f"budget: {budget:.0f} s is too short. Here {what} need about {need:.0f} s ({pace.step:.2g} s a step, "
                f"{pace.pilot_evaluation:.2g} s an evaluation of the pilot). Ask for more time, shorten evaluations "
                "with --queries, or train one arm only with --no-compare."
            )
        first = min(max(PILOT_SHARE * budget, shortest), budget - runs) if pilot else 0.0
        length = steps or max(FEWEST, fitting(pace, cells, jobs, budget - first))
        most = max(FEWEST, _pilot_fitting(pace, length, first))
    likely = min(most, length)
    seconds = run_seconds(pace, cells, jobs, length)
    if pilot:
        seconds += SLOWER * (likely * pace.pilot_step + _pilot_evaluations(pace)) + START
    return Plan(most, _every(likely), length, round(seconds, 1), jobs)


def fitting(pace: Pace, cells: int, jobs: int, seconds: float) -> int:
    """Steps of each of ``cells`` runs, ``jobs`` at a time, that ``seconds`` have room for; 0 or more."""
    each = (seconds - START) / -(-cells // jobs) / SLOWER - _evaluations(pace)
    return max(0, int(each / pace.step))


def run_seconds(pace: Pace, cells: int, jobs: int, steps: int) -> float:
    """How long ``cells`` runs of ``steps`` steps take, ``jobs`` at a time."""
    return -(-cells // jobs) * SLOWER * (steps * pace.step + _evaluations(pace)) + START


def seen_in(pace: Pace, plan: Plan, steps: int, seconds: float) -> Pace:
    """``pace``, slowed down where the pilot, whose ``steps`` took ``seconds``, was slower than that."""
    evaluations = steps // plan.pilot_eval_every + 1
    expected = steps * pace.pilot_step + evaluations * pace.pilot_evaluation + pace.evaluation
    slower = max(1.0, seconds / (SLOWER * expected))
    return Pace(**{name: slower * value for name, value in asdict(pace).items()})


def _pilot_fitting(pace: Pace, length: int, seconds: float) -> int:
    """Steps of a pilot that ``seconds`` have room for; beyond ``length`` it is evaluated as often as before."""
    room = (seconds - START) / SLOWER - pace.evaluation - pace.pilot_evaluation
    most = max(0, int((room - PILOT_EVALUATIONS * pace.pilot_evaluation) / pace.pilot_step))
    if most <= length:
        return most
    return max(length, int((room - pace.pilot_evaluation) / (pace.pilot_step + pace.pilot_evaluation / _every(length))))


def _every(steps: int) -> int:
    """Steps between evaluations of a pilot that is likely to take ``steps``."""
    return -(-steps // PILOT_EVALUATIONS)


def _evaluations(pace: Pace) -> float:
    return (EVALUATIONS + 2) * pace.evaluation  # one more at the start, and the test split at the end


def _pilot_evaluations(pace: Pace) -> float:
    return (PILOT_EVALUATIONS + 1) * pace.pilot_evaluation + pace.evaluation

"""Time to steps: the plan keeps within the budget that it was given."""

import pytest

from negwise.errors import InputError
from negwise.experiments.plan import (
    EVALUATIONS,
    FEWEST,
    PILOT_EVALUATIONS,
    PILOT_SHARE,
    SLOWER,
    START,
    Pace,
    fitting,
    make_plan,
    run_seconds,
    seconds_of,
    spread,
)

PACE = Pace(step=0.05, evaluation=0.4, pilot_evaluation=1.5)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (" 2D ", 172800)]
)
def test_times(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-5m", "0s", "5m!", "ten"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="budget"):
        seconds_of(text)


def test_the_plan_fits_the_budget_counted_by_hand():
    """Rounds of runs, each with its steps and evaluations, one after the other."""
    budget, cells, jobs = 600.0, 9, 2
    plan = make_plan(PACE, cells=cells, jobs=jobs, steps=None, budget=budget)
    clock = 0.0
    for first in range(0, cells, jobs):
        longest = max(
            plan.steps * PACE.step + (EVALUATIONS + 2) * PACE.evaluation for _ in range(first, min(first + jobs, cells))
        )
        clock += SLOWER * longest
    assert clock + START <= (1 - PILOT_SHARE) * budget < clock + START + 5 * SLOWER * 2 * PACE.step
    judging = (PILOT_EVALUATIONS + 1) * PACE.pilot_evaluation + PACE.evaluation
    pilot = SLOWER * (plan.pilot_steps * PACE.step + judging) + START
    assert pilot <= PILOT_SHARE * budget < pilot + 2 * SLOWER * PACE.step


def test_more_cells_get_fewer_steps_and_more_jobs_more():
    assert fitting(PACE, 9, 2, 300) > fitting(PACE, 15, 2, 300) > 0
    assert fitting(PACE, 9, 3, 300) > fitting(PACE, 9, 2, 300)
    assert fitting(PACE, 9, 1, 1) == 0
    assert run_seconds(PACE, 9, 2, fitting(PACE, 9, 2, 300)) <= 300


def test_without_a_budget_the_steps_are_those_asked_for():
    plan = make_plan(PACE, cells=9, jobs=2, steps=77, budget=None)
    assert (plan.steps, plan.pilot_steps) == (77, 154)


def test_a_budget_that_is_too_short_says_what_is_needed():
    with pytest.raises(InputError, match=r"20 s is too short.*--queries.*--no-compare") as caught:
        make_plan(PACE, cells=9, jobs=2, steps=None, budget=20)
    needed = float(str(caught.value).split("need about ")[1].split(" s")[0])
    plan = make_plan(PACE, cells=9, jobs=2, steps=None, budget=needed + 1)
    assert plan.steps >= FEWEST
    assert plan.pilot_steps >= FEWEST
    with pytest.raises(InputError, match="too short"):
        make_plan(PACE, cells=9, jobs=2, steps=100_000, budget=600)


def test_on_a_gpu_runs_wait_for_each_other_unless_asked():
    assert spread(None, "cuda", 9)[0] == 1
    assert spread(12, "cuda", 9)[0] == 12
    jobs, threads = spread(None, "cpu", 1)
    assert jobs == 1
    assert threads >= 1
    with pytest.raises(InputError, match="jobs"):
        spread(0, "cpu", 1)

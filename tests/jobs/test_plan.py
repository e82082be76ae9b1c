"""Time to steps: the plan keeps within the budget that it was given."""

from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from negwise.errors import InputError
from negwise.jobs import step_timing as planning
from negwise.jobs.plan import (
    ALONE,
    EVALUATIONS,
    FEWEST,
    PILOT_EVALUATIONS,
    PILOT_SHARE,
    SLOWER,
    START,
    fitting_steps,
    parallelism,
    plan_lengths,
    plan_one_run,
    run_seconds,
    slowed_by_pilot,
    validation_queries,
)
from negwise.jobs.race_plan import time_for_training
from negwise.jobs.step_timing import time_steps
from negwise.records import StepCost, StepRecord, StepTimes
from negwise.requests import RunRequest, TrainRequest, parse_duration
from negwise.tasks import make_task, with_recipe
from negwise.training import loop
from negwise.training.loop import Run

TIMES = StepTimes(step=0.05, evaluation=0.4, pilot_step=0.03, pilot_evaluation=1.5)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1h30m", 5400), (" 2D ", 172800)]
)
def test_times(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(("texts", "kept_back"), [(1_000, 4.0), (2_500, 10.0), (2_600, 0.0)])
def test_only_a_ranking_among_all_texts_that_will_be_made_has_time_kept_back(texts, kept_back):
    """0.4 s for each 100 candidates, where 5% of the budget, 10 s, may go into it; and 8 s for the page."""
    data = SimpleNamespace(name="pairs", n_items=texts, val=SimpleNamespace(candidates=(300, 400)))
    request = RunRequest(data="x", out="y", budget="200s")
    left = time_for_training(SimpleNamespace(data=data), TIMES, 20.0, request)
    assert left == pytest.approx(200 - 20 - 8 - kept_back)


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-5m", "0s", "5m!", "ten"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="budget"):
        parse_duration(text)


def test_the_plan_fits_the_budget_counted_by_hand():
    """Rounds of runs, each with its steps and evaluations, one after the other."""
    budget, runs, jobs = 600.0, 9, 2
    plan = plan_lengths(TIMES, runs=runs, jobs=jobs, steps=None, budget=budget)
    clock = 0.0
    for first in range(0, runs, jobs):
        longest = max(
            plan.steps * TIMES.step + (EVALUATIONS + 2) * TIMES.evaluation
            for _ in range(first, min(first + jobs, runs))
        )
        clock += SLOWER * longest
    assert clock + START <= (1 - PILOT_SHARE) * budget < clock + START + 5 * SLOWER * 2 * TIMES.step


@pytest.mark.parametrize(("steps", "budget", "jobs"), [(None, 600, 2), (None, 600, 1), (100, 3600, 2), (None, 200, 2)])
def test_the_pilot_keeps_to_its_share_walked_through_step_by_step(steps, budget, jobs):
    """However far it goes beyond the length of a run, evaluations included."""
    plan = plan_lengths(TIMES, runs=9, jobs=jobs, steps=steps, budget=budget)
    clock = TIMES.pilot_evaluation
    for step in range(1, plan.pilot_steps + 1):
        clock += TIMES.pilot_step
        if step % plan.pilot_eval_every == 0 or step == plan.pilot_steps:
            clock += TIMES.pilot_evaluation
    taken = SLOWER * (clock + TIMES.evaluation) + START
    assert 0.9 * PILOT_SHARE * budget < taken <= PILOT_SHARE * budget
    assert PILOT_EVALUATIONS - 1 <= min(plan.steps, plan.pilot_steps) / plan.pilot_eval_every <= PILOT_EVALUATIONS


def test_a_pilot_that_was_slower_than_timed_slows_down_the_rest():
    plan = plan_lengths(TIMES, runs=9, jobs=2, steps=120, budget=None)
    expected = 240 * TIMES.pilot_step + 25 * TIMES.pilot_evaluation + TIMES.evaluation
    assert slowed_by_pilot(TIMES, plan, 240, expected) == TIMES
    assert slowed_by_pilot(TIMES, plan, 240, SLOWER * expected) == TIMES  # what was allowed for
    slow = slowed_by_pilot(TIMES, plan, 240, 2 * SLOWER * expected)
    assert (slow.step, slow.evaluation) == pytest.approx((0.1, 0.8))
    assert (slow.pilot_step, slow.pilot_evaluation) == pytest.approx((0.06, 3.0))
    assert (slow.k, slow.max_k) == (TIMES.k, TIMES.max_k)


def test_more_cells_get_fewer_steps_and_more_jobs_more():
    assert fitting_steps(TIMES, 9, 2, 300) > fitting_steps(TIMES, 15, 2, 300) > 0
    assert fitting_steps(TIMES, 9, 3, 300) > fitting_steps(TIMES, 9, 2, 300)
    assert fitting_steps(TIMES, 9, 1, 1) == 0
    assert run_seconds(TIMES, 9, 2, fitting_steps(TIMES, 9, 2, 300)) <= 300


def test_without_a_budget_the_steps_are_those_asked_for():
    plan = plan_lengths(TIMES, runs=9, jobs=2, steps=77, budget=None)
    assert (plan.steps, plan.pilot_steps) == (77, 154)


def test_a_budget_that_is_too_short_says_what_is_needed():
    with pytest.raises(InputError, match=r"20 s is too short.*larger --budget.*--compare none") as caught:
        plan_lengths(TIMES, runs=9, jobs=2, steps=None, budget=20)
    needed = float(str(caught.value).split("need about ")[1].split(" s")[0])
    judging = (PILOT_EVALUATIONS + 1) * TIMES.pilot_evaluation + TIMES.evaluation
    pilot = SLOWER * (FEWEST * TIMES.pilot_step + judging) + START
    assert needed == pytest.approx(pilot + run_seconds(TIMES, 9, 2, FEWEST), abs=0.5)
    plan = plan_lengths(TIMES, runs=9, jobs=2, steps=None, budget=needed + 1)
    assert plan.steps >= FEWEST
    assert plan.pilot_steps >= FEWEST
    with pytest.raises(InputError, match="too short"):
        plan_lengths(TIMES, runs=9, jobs=2, steps=100_000, budget=600)


@pytest.mark.parametrize(
    ("queries", "seconds", "left", "alone", "racing"),
    [
        (6040, 0.47, 57.0, None, 2000),  # never fewer for the race
        (6040, 0.2, 57.0, None, int(6040 * 2.85 / (24 * 0.2))),  # 24 evaluations in a twentieth of the time
        (6040, 0.1, 57.0, None, None),
        (6040, 2.0, 57.0, int(6040 * 5.7 / 12), 2000),  # 6 in a tenth of it
        (1866, 0.95, 90.0, None, None),
        (6040, 9.0, 57.0, int(6040 * 5.7 / 54), int(6040 * 5.7 / 54)),  # unless so many do not fit
        (6040, 9.0, None, None, None),
    ],
)
def test_a_race_validates_on_so_many_queries_that_it_can_look_often(queries, seconds, left, alone, racing):
    assert validation_queries(queries, seconds, left, races=False) == alone
    assert validation_queries(queries, seconds, left, races=True) == racing


def test_a_slow_machine_gives_the_pilot_more_than_its_share():
    """Where evaluations are dear, the shortest pilot takes more than 30%, and the runs still fit."""
    slow = StepTimes(step=0.6, evaluation=0.6, pilot_step=0.5, pilot_evaluation=5.1)
    plan = plan_lengths(slow, runs=9, jobs=2, steps=None, budget=270)
    judging = (PILOT_EVALUATIONS + 1) * slow.pilot_evaluation + slow.evaluation
    pilot = SLOWER * (plan.pilot_steps * slow.pilot_step + judging) + START
    assert pilot > PILOT_SHARE * 270
    assert plan.pilot_steps >= FEWEST
    assert plan.steps >= FEWEST
    assert pilot + run_seconds(slow, 9, 2, plan.steps) <= 270


def test_on_a_gpu_runs_wait_for_each_other_unless_asked():
    assert parallelism(None, "cuda", 9)[0] == 1
    assert parallelism(12, "cuda", 9)[0] == 12
    jobs, threads = parallelism(None, "cpu", 1)
    assert jobs == 1
    assert threads >= 1
    with pytest.raises(InputError, match="jobs"):
        parallelism(0, "cpu", 1)


@pytest.mark.parametrize(("bound", "threads"), [("1", 1), ("3", 3), ("99", 8), ("", 8), ("4,2", 8), ("0", 8)])
def test_a_bound_on_threads_is_kept(monkeypatch, bound, threads):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", bound)
    assert parallelism(1, "cpu", 9) == (1, threads)


def test_the_pace_has_the_steps_of_a_run_and_those_of_the_pilot(monkeypatch):
    """Each K is trained for as many steps, and its own median is kept."""
    trained = []

    def fit(training, _, folder, **__):
        trained.append((training.k, training.steps))
        beat = {"20": 0.5, "1": 0.25}[training.k]
        times[folder] = [beat * step for step in range(training.steps)]

    times = {}
    made = Made()
    monkeypatch.setattr(planning, "make_task", lambda *_: made)
    monkeypatch.setattr(planning, "fit_task", fit)
    monkeypatch.setattr(
        planning, "read_run", lambda at: SimpleNamespace(steps=[StepRecord(0, time=t) for t in times[Path(at)]])
    )
    monkeypatch.setattr(planning, "evaluation_splits", lambda *_: {"val": 3.0, "train": 4.0})
    monkeypatch.setattr(planning, "_evaluation_seconds", lambda _, split: split)
    found = time_steps(TrainRequest(data="docs", model="siamese-cnn", k="20", batch_size=128), None, 8)
    assert trained == [("20", 8), ("1", 8)]
    assert found == StepTimes(step=0.5, evaluation=3.0, pilot_step=0.25, pilot_evaluation=7.0, k=20.0, epoch=5)


@dataclass(frozen=True)
class Made:
    """A task without anything in it."""

    data: None = None
    examples: tuple = (0,) * 640
    model: None = None
    splits: tuple = ()
    assets: type = dict


def test_an_evaluation_is_timed_on_the_device_that_trains(monkeypatch):
    """The weights that candidates start from stay on the CPU; a GPU is a hundred times as fast."""
    request = with_recipe(TrainRequest(data="clicks", model="nrms", k="4", device="cpu", evaluate_training=False))
    task = make_task(request)
    timed = []
    monkeypatch.setattr(planning, "resolve_device", lambda _: "meta")
    monkeypatch.setattr(planning, "step_costs", lambda *_: (StepCost(4.0, 0.1),))
    monkeypatch.setattr(planning, "_evaluation_seconds", lambda model, _: timed.append(model) or 1.0)
    planning.time_one_run(request, task)
    assert {value.device.type for value in timed[0].parameters()} == {"meta"}
    assert {value.device.type for value in task.model.parameters()} == {"cpu"}


def clicks_task(k="4"):
    request = with_recipe(TrainRequest(data="clicks", model="nrms", k=k, device="cpu", evaluate_training=False))
    return request, make_task(request)


def full_beyond(limit):
    """A step of training that runs out of memory with more than ``limit`` negatives."""
    usual = Run.update_weights

    def update_weights(self, inputs):
        if self.controller.k(self.state.step) > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return usual(self, inputs)

    return update_weights


@pytest.mark.parametrize(
    ("ks", "found"), [((1.0, 4.0, 16.0), [1, 4, 8]), ((1.0, 7.0, 16.0), [1, 7, 8]), ((16.0,), [8])]
)
def test_a_k_that_does_not_fit_is_halved(monkeypatch, ks, found):
    """Up to 8 fit. Nothing larger is timed after that."""
    request, task = clicks_task()
    monkeypatch.setattr(Run, "update_weights", full_beyond(8))
    assert [cost.k for cost in planning.step_costs(request, task, ks, larger=(18.0,))] == found
    monkeypatch.setattr(Run, "update_weights", full_beyond(5))
    assert [cost.k for cost in planning.step_costs(request, task, (1.0, 4.0), larger=(5.0, 18.0))] == [1, 4, 5]
    monkeypatch.setattr(Run, "update_weights", full_beyond(0))
    with pytest.raises(torch.OutOfMemoryError):
        planning.step_costs(request, task, (1.0,))


def timed(monkeypatch, seconds_of, ks, larger, room):
    """K that were timed where a step takes ``seconds_of(k)``."""
    request, task = clicks_task()
    clock = SimpleNamespace(now=0.0)
    usual = Run.update_weights

    def update_weights(self, inputs):
        clock.now += seconds_of(self.controller.k(self.state.step))
        return usual(self, inputs)

    monkeypatch.setattr(Run, "update_weights", update_weights)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: clock.now))
    costs = planning.step_costs(request, task, ks, larger, room)
    assert [cost.seconds for cost in costs] == pytest.approx([seconds_of(cost.k) for cost in costs])
    return [cost.k for cost in costs], clock.now


def test_larger_k_are_timed_as_far_as_that_is_quick(monkeypatch):
    larger = (8.0, 12.0, 18.0)
    assert timed(monkeypatch, lambda _: 0.1, (1.0, 4.0), larger, 9.0)[0] == [1, 4, 8, 12, 18]
    dear = timed(monkeypatch, lambda k: 0.1 * max(k - 4, 1), (1.0, 4.0), larger, 9.0)
    assert dear[0] == [1, 4, 8]  # four times the shortest
    few = timed(monkeypatch, lambda _: 0.1, (1.0, 4.0), larger, 0.5)
    assert few[0] == [1, 4, 8, 12]  # two steps of each in half a second
    assert timed(monkeypatch, lambda k: 0.01 * k, (1.0, 4.0), larger, 9.0)[0] == [1, 4]  # 4 is dear already
    assert timed(monkeypatch, lambda _: 0.1, (0.1, 0.5), larger, 9.0)[0] == [0.1, 0.5, 8, 12, 18]
    assert timed(monkeypatch, lambda _: 0.1, (0.1,), larger, 9.0)[0] == [0.1]  # 80 times as many


@pytest.mark.parametrize(("seconds", "steps"), [(0.1, 3), (0.19, 2), (5.0, 1)])
def test_slow_steps_are_timed_once(monkeypatch, seconds, steps):
    assert timed(monkeypatch, lambda _: seconds, (1.0, 4.0), (), 9.0)[1] == pytest.approx(seconds * (1 + 2 * steps))


def test_a_step_with_fewer_negatives_takes_no_longer():
    """The running minimum from the largest K, written out: at K = 1 and at K = 20 the machine was disturbed."""
    timed = [StepCost(1, 0.43), StepCost(4, 0.2), StepCost(20, 0.5), StepCost(47, 0.24), StepCost(100, 0.3)]
    assert [cost.seconds for cost in planning.undisturbed(timed)] == [0.2, 0.2, 0.24, 0.24, 0.3]
    assert [cost.k for cost in planning.undisturbed(timed)] == [1, 4, 20, 47, 100]


def test_a_budget_that_one_run_does_not_fit_into_says_which_would_do():
    with pytest.raises(InputError, match=r"leave 0 s for training, and 24 steps .*Type --budget 30s or more") as caught:
        plan_one_run(TIMES, runs=1, jobs=1, steps=None, budget=-5.0, most=1000, whole=20.0)
    assert "--queries" not in str(caught.value)
    need = ALONE * (FEWEST * 1.1 * TIMES.step + 2 * TIMES.evaluation)
    assert f"need about {need:.0f} s" in str(caught.value)
    assert plan_one_run(TIMES, runs=1, jobs=1, steps=None, budget=need + 0.1, most=1000).steps >= FEWEST

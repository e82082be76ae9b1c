"""The plan of the main job in words: what a step costs at each K, and how long all of it takes."""

from __future__ import annotations

from negwise.jobs.plan import ALONE, LAST, corpus_seconds, last_seconds
from negwise.jobs.preparation import format_duration
from negwise.jobs.race import rung_step
from negwise.jobs.race_plan import PreparedRace, step_seconds
from negwise.records import Candidate, RaceStart
from negwise.report.formatting import metric_name
from negwise.report.k_in_words import format_k
from negwise.requests import RunRequest, parse_duration


def explain(start: RaceStart, prepared: PreparedRace, request: RunRequest) -> str:
    """The plan in a few sentences, with the time of all of it."""
    first, raced = start.candidates[0], len(start.candidates)
    time_of_all = f"{_time_in_words(start, prepared, request)} {start.reason}"
    ks = _k_in_words(first, prepared)
    if len(start.candidates) == 1:
        return f"Plan: {first.steps} steps with {ks}. {time_of_all}"
    names = "; ".join(one.name for one in start.candidates)
    later = f"; perhaps then {start.joins[0].name}" if start.joins else ""
    return (
        f"Plan: a race of {raced} candidates for {rung_step(first)} steps ({names}{later}). "
        f"The best goes on to about {first.steps} steps, with {ks}. {time_of_all}"
    )


def _k_in_words(candidate: Candidate, prepared: PreparedRace) -> str:
    """K = 64 for HR@5; K = 20; K by the rule online."""
    k = prepared.plan.times.k if candidate.max_k is None else candidate.max_k
    if candidate.rule == "metric":
        return f"K = {format_k(k)} for {metric_name(prepared.metrics[0])}"
    typed = candidate.rule.replace(".", "", 1).isdecimal() or candidate.rule == "all"
    return f"K = {format_k(k)}" if typed else f"K by the rule {candidate.rule}"


def _time_in_words(start: RaceStart, prepared: PreparedRace, request: RunRequest) -> str:
    """How long all of it takes, other seeds and other K included."""
    main, each = planned_seconds(start, prepared, request)
    told, why, budget = f"about {format_duration(main)}", "", request.budget
    if budget is not None and ends_by_time(start, prepared, request):
        goes_on = prepared.plan.start is not None and prepared.plan.start.goes_on
        told = f"{told}, the rest of {budget}," if goes_on else budget
    elif budget is not None:
        what = "the steps that were typed" if request.steps is not None else "the recipe's epochs"
        told, why = f"{told} of {budget}", f" {what[0].upper()}{what[1:]} end then."
    seeds, ks = request.seeds - 1, len(set(request.other_ks))
    if not seeds and not ks:
        return f"It takes {told} in all.{why}"
    more = [f"{seeds} more seed{'s' * (seeds > 1)}"] * bool(seeds) + [f"{ks} other K"] * bool(ks)
    on_top = f"about {format_duration(each)} for each of {' and '.join(more)}"
    return f"It takes about {format_duration(main + (seeds + ks) * each)} in all: {told} for the model, {on_top}.{why}"


def ends_by_time(start: RaceStart, prepared: PreparedRace, request: RunRequest) -> bool:
    """Whether the budget ends training, and not the recipe's epochs or the steps that were typed."""
    return request.budget is not None and request.steps is None and start.candidates[0].steps < prepared.most


def planned_seconds(start: RaceStart, prepared: PreparedRace, request: RunRequest) -> tuple[float, float]:
    """Seconds of the job from its beginning, without earlier rounds, and of each further seed and other K."""
    first, *others = start.candidates
    plan = prepared.plan
    each = _run_seconds(prepared, first, first.steps) + plan.times.evaluation  # the test split
    race = sum(_run_seconds(prepared, one, rung_step(one)) for one in (*others, *start.joins[:1]))
    budget = None if request.budget is None else parse_duration(request.budget)
    before = 0.0 if plan.start is None else plan.start.seconds
    if budget is not None and ends_by_time(start, prepared, request):
        return budget - before, each
    corpus = corpus_seconds(plan.times, prepared.task) if prepared.task.data.name == "pairs" else 0.0
    last = LAST if budget is None else last_seconds(budget)
    return plan.spent + each + race + last + corpus, each


def _run_seconds(prepared: PreparedRace, candidate: Candidate, steps: int) -> float:
    """Seconds of a candidate's first ``steps`` and their evaluations."""
    times = prepared.plan.times
    evaluations = steps / candidate.eval_every + 1
    return ALONE * (steps * step_seconds(prepared.plan, candidate) + evaluations * times.evaluation)

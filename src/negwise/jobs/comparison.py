"""Other K beside the model of the main job, each trained for the same time at its own pace: ``--compare 1,100``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from negwise.jobs.arms import parse_arm
from negwise.jobs.preparation import Log
from negwise.jobs.race import RaceLog
from negwise.jobs.race_plan import PreparedRace
from negwise.jobs.single_run import fit_task, make_rule
from negwise.jobs.step_timing import largest_k, step_costs
from negwise.records import Comparison
from negwise.requests import TrainRequest
from negwise.tasks import copy_task
from negwise.training.checkpoint import keep_best

TURNS = 3


def compare_k(
    folder: Path,
    rules: Sequence[str],
    prepared: PreparedRace,
    model: TrainRequest,
    steps: int,
    decisions: RaceLog,
    log: Log,
) -> dict[str, Path]:
    """Train each of ``rules`` as ``model`` was, for the time of its ``steps``. Returns run folders by name."""
    found = {}
    for rule in dict.fromkeys(parse_arm(rule).rule for rule in rules):
        own = replace(model, k=rule, max_k=prepared.request.max_k)
        known = next((one for one in decisions.comparisons if one.rule == rule), None)
        if known is None:
            known = _plan(rule, own, prepared, model, steps)
            decisions.add(known)
        log(f"Training K = {rule} for the same time: {known.steps} steps ...")
        place = folder / "runs" / f"compare-{rule.replace(':', '-')}" / f"seed-{model.seed}"
        own = replace(own, steps=known.steps, eval_every=min(model.eval_every or known.steps, known.steps))
        fit_task(own, copy_task(prepared.task, own), place)
        keep_best(place, optimizer=False)
        found[f"K = {rule}, same time"] = place
    return found


def _plan(rule: str, own: TrainRequest, prepared: PreparedRace, model: TrainRequest, steps: int) -> Comparison:
    """Steps of ``own`` that take as long as ``steps`` of ``model``; both are timed in turn, and the fastest counts."""
    task = prepared.task
    both = [(one, [largest_k(make_rule(one, task))]) for one in (own, model)]
    turns = [[step_costs(one, task, ks)[-1].seconds for one, ks in both] for _ in range(TURNS)]
    mine, theirs = (min(seconds) for seconds in zip(*turns, strict=True))
    return Comparison(rule, max(round(steps * theirs / mine), 1), mine, theirs)

"""What the answer of a job needs beside its scores: baselines, the whole corpus, shares of the gain, the whole cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from negwise.errors import NegwiseError
from negwise.jobs.gain_shares import measured_costs, shares_of
from negwise.jobs.plan import CORPUS_SHARE, corpus_seconds
from negwise.jobs.results import JobResult, last_k
from negwise.records import (
    JOB,
    LOG,
    RESULTS,
    JobRecord,
    Plan,
    Results,
    read_record,
    read_result,
    read_run,
    write_record,
)
from negwise.report.write_report import draw_figures
from negwise.requests import parse_duration
from negwise.stages import listening_since, stage
from negwise.tasks import Task
from negwise.tasks.baselines import baseline_of, baselines_of, corpus_scores
from negwise.training import load_weights, read_ranks

REST = "for baselines, this page and all else"
"""Of the whole time, what is neither planning nor training."""


def add_answer_facts(
    result: JobResult,
    task: Task,
    compared: Mapping[str, Path],
    *,
    device: str,
    most: float,
    began: float,
    log: Callable[[str], None],
) -> JobResult:
    """``result`` with what the answer needs, written to ``results.json``. ``compared``: runs with another K, by name.

    ``task`` is that of the model that is kept, whose weights it gets where something is missing; the model then ranks
    on ``device``. ``most`` is the number of negatives that a row can have, ``began`` the `time.monotonic` at which
    this call of the job began; where its caller listened for signs of life before, as the verbs do, that counts.
    """
    record, folder, model = result.record, result.folder, result.record.model
    if model is None:
        return result
    job = read_record(JobRecord, folder / JOB)
    plan = job.plan
    if not record.baselines:
        log("Comparing the model with what needs no training ...")
        budget = job.request.get("budget")
        room = None if budget is None else CORPUS_SHARE * parse_duration(str(budget))
        record = _compared(record, folder, task, compared, device, plan, room)
    candidates = None if record.candidates is None else round(record.candidates)
    own, costs = last_k([folder / model]), measured_costs(plan)
    shares = shares_of(record.metrics[0], candidates, costs, most=most, own=own, estimate=result.estimate)
    record = replace(record, shares=shares)
    write_record(folder / RESULTS, record)
    _draw(folder)
    began = min(began, listening_since() or began)
    seconds = whole_seconds(record.seconds, plan, trained_seconds(folder), time.monotonic() - began)
    record = replace(record, seconds=seconds, seconds_by_use=seconds_by_use(seconds, record, folder, plan))
    write_record(folder / RESULTS, record)
    return replace(result, record=record)


def whole_seconds(before: float | None, plan: Plan, trained: float, this_call: float) -> float:
    """Wall time of a job: that of the call that did it, or where it was resumed the sum of what its records hold.

    Earlier rounds, if it goes on, are part of it.
    """
    rounds = 0.0 if plan.start is None else plan.start.seconds
    return round(max(rounds + max(this_call, plan.spent + trained), before or 0.0), 3)


def seconds_by_use(seconds: float, record: Results, folder: Path, plan: Plan) -> dict[str, float]:
    """What the ``seconds`` of the whole job went into; ``REST`` is what the records do not name."""
    model = sum(seed.seconds or 0.0 for arm in record.arms for seed in arm.seeds)
    others = sum(one.seconds or 0.0 for one in record.baselines)
    named = {
        "in earlier rounds": 0.0 if plan.start is None else plan.start.seconds,
        "loading, reading and timing": plan.spent,
        "training the model": model,
        "training the race's other candidates": trained_seconds(folder) - model - others,
        "training other K to compare": others,
    }
    named[REST] = seconds - sum(named.values())
    return {use: round(spent, 3) for use, spent in named.items() if spent > 0.0005}


def trained_seconds(folder: Path) -> float:
    """Seconds of all training in the folder of a job, that of candidates which were dropped included."""
    return sum(_seconds_of(log.parent) for log in folder.glob(f"runs/*/seed-*/{LOG}"))


def _seconds_of(run: Path) -> float:
    """Seconds of one run, which may not have come to its end."""
    result = read_result(run)
    if result is not None:
        return result.seconds
    steps = read_run(run / LOG).steps
    return (steps[-1].time or 0.0) if steps else 0.0


def _draw(folder: Path) -> None:
    """Draw the figures of the page, which takes most of its time, so that the cost has it; they are drawn once.

    Where they cannot be drawn, the page says why.
    """
    with suppress(NegwiseError):
        draw_figures(folder)


def _compared(
    record: Results,
    folder: Path,
    task: Task,
    others: Mapping[str, Path],
    device: str,
    plan: Plan,
    room: float | None,
) -> Results:
    """``record`` with baselines and, for text pairs and within ``room`` seconds, the scores among the whole corpus."""
    assert record.model is not None
    run = folder / record.model
    ranks = read_ranks(run)
    load_weights(task.model, run)
    task.model.to(device)
    trained = [
        replace(
            baseline_of(name, read_ranks(place), ranks, record.metrics),
            trained=True,
            k=last_k([place]),
            seconds=_seconds_of(place),
        )
        for name, place in others.items()
    ]
    with stage("ranking without training"):
        baselines = (*baselines_of(task, ranks, record.metrics), *trained)
    found = replace(record, baselines=baselines, candidates=float(ranks.sizes.mean()))
    if task.data.name == "pairs" and room is not None and corpus_seconds(plan.times, task) > room:
        left_out = (
            f"The model was not ranked among all {task.data.n_items:,} texts. That takes about "
            f"{corpus_seconds(plan.times, task):.0f} s, which is more than {CORPUS_SHARE:.0%} of the budget."
        )
        return replace(found, caveats=(*found.caveats, left_out))
    with stage(f"ranking among all {task.data.n_items:,} texts"):
        return replace(found, corpus=corpus_scores(task, record.metrics))

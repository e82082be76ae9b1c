"""What the answer of a job needs beside its scores: baselines, the whole corpus, shares of the gain, the whole cost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from negwise.jobs.gain_shares import measured_costs, shares_of
from negwise.jobs.results import JobResult
from negwise.records import JOB, RESULTS, JobRecord, Results, read_record, write_record
from negwise.tasks import Task
from negwise.tasks.baselines import baselines_of, corpus_scores
from negwise.training import load_weights, read_ranks


def add_answer_facts(
    result: JobResult,
    make: Callable[[], Task],
    *,
    device: str,
    most: float,
    began: float,
    log: Callable[[str], None],
) -> JobResult:
    """``result`` with what the answer needs, written to ``results.json``.

    ``make`` gives the task of the model that is kept, and is called where something is missing; the model then ranks on
    ``device``. ``most`` is the number of negatives that a row can have, ``began`` the `time.monotonic` at which this
    call of the job began.
    """
    record, folder = result.record, result.folder
    if record.model is None:
        return result
    plan = read_record(JobRecord, folder / JOB).plan
    if not record.baselines:
        log("Comparing the model with what needs no training ...")
        record = _compared(record, folder, make(), device)
    candidates = None if record.candidates is None else round(record.candidates)
    record = replace(
        record,
        shares=shares_of(record.metrics[0], candidates, measured_costs(plan), most=most, estimate=result.estimate),
        seconds=whole_seconds(record, plan.spent, time.monotonic() - began),
    )
    write_record(folder / RESULTS, record)
    return replace(result, record=record)


def whole_seconds(record: Results, spent: float, this_call: float) -> float:
    """Wall time of a job: that of the call that did it, or where it was resumed the sum of what its records hold."""
    trained = sum(seed.seconds or 0.0 for arm in record.arms for seed in arm.seeds)
    pilot = 0.0 if record.pilot is None else record.pilot.seconds or 0.0
    return round(max(this_call, spent + trained + pilot, record.seconds or 0.0), 3)


def _compared(record: Results, folder: Path, task: Task, device: str) -> Results:
    """``record`` with baselines and, for text pairs, the scores among the whole corpus."""
    assert record.model is not None
    run = folder / record.model
    ranks = read_ranks(run)
    load_weights(task.model, run)
    task.model.to(device)
    return replace(
        record,
        baselines=baselines_of(task, ranks, record.metrics),
        corpus=corpus_scores(task, record.metrics),
        candidates=float(ranks.sizes.mean()),
    )

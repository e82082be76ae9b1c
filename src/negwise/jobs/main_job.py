"""The main job: look at the data, plan from timed steps, train one model with the whole budget, and show it.

A job is a folder: ``job.json`` (what was asked, what is in the data, the plan), ``arms/``, ``results.json``,
``report.html``; the paper's way adds ``pilot/seed-0/``, ``estimate.json`` and ``tuning/``. The same call again resumes
from whatever is there.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from negwise.datasets import open_source
from negwise.files import lock_folder
from negwise.jobs.answer_facts import add_answer_facts
from negwise.jobs.arms import parse_arm
from negwise.jobs.grid import Grid
from negwise.jobs.paper_job import run_paper_job
from negwise.jobs.plan import evaluations_of
from negwise.jobs.preparation import Log, prepare_job
from negwise.jobs.results import JobResult, collect_and_write, write_page
from negwise.jobs.single_run import default_k, train_run
from negwise.requests import RunRequest
from negwise.tasks import make_task


def run_job(request: RunRequest, *, log: Log = print) -> JobResult:
    """Do the whole job in the folder ``request.out``; ``log`` receives a line for each decision."""
    return run_paper_job(request, log=log) if request.method == "paper" else train_one_model(request, log=log)


def train_one_model(request: RunRequest, *, log: Log = print) -> JobResult:
    """One run with the whole budget, for each seed one after another, in this process; K by ``request.k``."""
    began, folder = time.monotonic(), Path(request.out)
    arm = parse_arm(request.k or default_k(request.negatives), "model")
    seeds = tuple(range(request.seed, request.seed + request.seeds))
    with lock_folder(folder, "job"):
        prepared = prepare_job(
            folder, request, kind="run", runs=request.seeds, pilot=False, arms=(arm,), log=log, one_run=True
        )
        steps = prepared.lengths.steps
        every = -(-steps // evaluations_of(prepared.times, steps))
        base = replace(prepared.request, steps=steps, eval_every=every, evaluate_training=False)
        grid = Grid(folder, (arm,), base, (prepared.rate,), seeds, source=prepared.source)
        source = None if prepared.source is None else open_source(prepared.source)
        try:
            for run in grid.runs(arm):
                train_run(replace(run.request, out=str(run.folder)), source=source, any_k=True)
        finally:
            result = collect_and_write(grid, "run", prepared.metrics, None, None, ())
        kept = grid.runs(arm)[0].request
        result = add_answer_facts(
            result,
            lambda: make_task(kept, source),
            device=prepared.request.device,
            most=prepared.ceiling,
            began=began,
            log=log,
        )
        write_page(folder, log)
        return result

"""Jobs: one run, the main job, sweeps; the grid of runs behind them and the processes that train it."""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="train")

from negwise.jobs.arms import Arm, parse_arm
from negwise.jobs.grid import Grid, choose_rate, rates_around, train_missing
from negwise.jobs.main_job import plan_job, run_job
from negwise.jobs.pilot import bounded_auc, estimate_from_log
from negwise.jobs.plan import parallelism
from negwise.jobs.pool_progress import pool_progress
from negwise.jobs.preparation import machine, versions
from negwise.jobs.results import JobResult
from negwise.jobs.single_run import TrainResult, fit_task, train_run
from negwise.jobs.sweep import run_sweep
from negwise.jobs.worker_pool import PlannedRun, failure_of

__all__ = [
    "Arm",
    "Grid",
    "JobResult",
    "PlannedRun",
    "TrainResult",
    "bounded_auc",
    "choose_rate",
    "estimate_from_log",
    "failure_of",
    "fit_task",
    "machine",
    "parallelism",
    "parse_arm",
    "plan_job",
    "pool_progress",
    "rates_around",
    "run_job",
    "run_sweep",
    "train_missing",
    "train_run",
    "versions",
]

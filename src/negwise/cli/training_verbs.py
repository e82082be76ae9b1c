"""`data`, `train`, `run` and `sweep`: a look at data, one run, the main job, many runs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from negwise.errors import InputError, NegwiseError
from negwise.requests import DataRequest, RunRequest, SweepRequest, TrainRequest
from negwise.requests.training_requests import SCHEDULES
from negwise.schedule import check_rule
from negwise.stages import signs_of_life, stage

if TYPE_CHECKING:
    from negwise.jobs import JobResult


LOADING = "loading torch"


def data_verb(request: DataRequest, as_json: bool) -> None:
    """Show what is in a data set: columns, size, how large K can be, example rows, problems.

    \b
    Examples:
      negwise data docs
      negwise data MINDsmall_train
      negwise data ratings.csv --positive "rating>=4"
      negwise data ratings.csv --skip-bad 10 --json
    """
    from negwise.datasets import inspect

    with signs_of_life():
        report = inspect(request.data, columns=request.columns, positive=request.positive, skip_bad=request.skip_bad)
    print(json.dumps(report.to_dict()) if as_json else report.explain())


def train_verb(request: TrainRequest, as_json: bool) -> None:
    """Train one model with one rule for K. The same command resumes a run that was killed or stopped.

    \b
    Examples:
      negwise train --data docs --model siamese-cnn --k warm:20 --steps 60 --eval-every 30 --body-words 20 --out runs/a
      negwise train --data clicks --model nrms --k 4 --steps 30 --eval-every 15 --queries 300 --out runs/b
      negwise train --data docs --model siamese-lstm --k ans:20 --steps 20 --eval-every 20 --body-words 20 --out runs/c
    """
    if request.k is not None:
        check_rule(request.k)  # a typo is told before torch is loaded
    if request.out is None:
        raise InputError("--out: got nothing, expected a folder for the run, as --out runs/a.")
    with stop_message(), signs_of_life():
        with stage(LOADING):
            from negwise.jobs import train_run
            from negwise.records import lines_of_use
            from negwise.training.journal import result_in_words

        result = train_run(request)
    if not is_first_rank():
        return
    if as_json:
        print(json.dumps(result.to_dict()))
        return
    for name, scores in result.record.evaluations.items():
        print(f"{name}: {result_in_words(scores, result.metric)}")
    print(f"weights: {result.folder / result.record.weights}")
    print(lines_of_use(result.folder, str(result.folder)))


def run_verb(request: RunRequest, as_json: bool) -> None:
    """Train one model on your data in the time that you give it, and write a page about it.

    \b
    Examples:
      negwise run --budget 5m
      negwise run --data pairs.jsonl --out jobs/pairs --budget 30m --metric mrr
      negwise run --data pairs.jsonl --budget 30m --plan
      negwise run --data pairs.jsonl --budget 30m --compare 1,100
      negwise run --data ratings.csv --method paper --compare none --steps 2000
    """
    compared = () if request.compare == ("none",) else request.compare or ()
    for rule in (request.k, request.schedule, *compared):
        if rule is not None and rule not in SCHEDULES:
            check_rule(rule)
    with stop_message(), signs_of_life():
        with stage(LOADING):
            from negwise.jobs import plan_job, run_job

        if request.plan:
            plan, start = plan_job(request, log=log)
            if as_json:
                print(json.dumps({"plan": asdict(plan), "race": asdict(start)}))
            return
        result = run_job(request, log=log)
    _show_job(result, as_json)


def sweep_verb(request: SweepRequest, as_json: bool) -> None:
    """Train a grid of K, schedules and seeds. Finished runs are kept, and a failed one is shown as failed.

    \b
    Examples:
      negwise sweep --out sweeps/docs --k 1,4,20,100 --steps 300 --seeds 3
      negwise sweep --out sweeps/mine --data ratings.csv --k 1,20,warm:20,ans:20 --learning-rate 3e-4,1e-3,3e-3
    """
    for rule in request.k:
        check_rule(rule)
    with stop_message(), signs_of_life():
        with stage(LOADING):
            from negwise.jobs import run_sweep

        result = run_sweep(request, log=log)
    _show_job(result, as_json)


def _show_job(result: JobResult, as_json: bool) -> None:
    """The results of a job; exit 1 where every run of it failed."""
    if as_json:
        print(json.dumps(result.to_dict()))
    else:
        from negwise import terminal

        terminal.show_results(result)
    if result.record.chosen is None:
        raise NegwiseError(f"{result.folder}: no run came to an end; each says why in its failed.json.")


@contextmanager
def stop_message() -> Iterator[None]:
    """After Ctrl-C: how to resume, and the exit code that shells expect.

    `negwise.training.Stopped`, a KeyboardInterrupt, says what was saved; another one comes where nothing was to be.
    """
    try:
        yield
    except KeyboardInterrupt as stopped:
        if is_first_rank():
            message = str(stopped) or "stopped. Type the same command again; what is in its folder stays done"
            print(f"negwise: {message}", file=sys.stderr)
        raise typer.Exit(130) from None


def is_first_rank() -> bool:
    """Of several processes under ``torchrun`` the first one speaks."""
    return os.environ.get("RANK", "0") == "0"


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)

"""`run` and `sweep`: many runs, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from negwise.cli.options import (
    BatchSize,
    Column,
    Data,
    Device,
    Jobs,
    Json,
    Lam,
    Model,
    Pool,
    Precision,
    Queries,
    SkipBad,
    Split,
)
from negwise.cli.showing import show_results, stopping, tell
from negwise.cli.words import columns, numbers


def run(
    data: Data = "docs",
    out: Annotated[Path, typer.Option(help="The job's folder; the same command again goes on.")] = Path("negwise-run"),
    model: Model = None,
    schedule: Annotated[str, typer.Option(help="fixed, warm or ans, up to K*; or a rule such as warm:20.")] = "fixed",
    budget: Annotated[str | None, typer.Option(help="Time for all of it: 90s, 10m, 2h.")] = None,
    steps: Annotated[
        int | None, typer.Option(help="Updates of each run.", show_default="by the budget, or 1000")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each arm; 5 give error bars worth the name.")] = 1,
    jobs: Jobs = None,
    compare: Annotated[
        bool, typer.Option(help="Train K = 1, fixed K* and, if that is more, 100 beside the schedule.")
    ] = True,
    lam: Lam = 0.9,
    batch_size: BatchSize = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="A third, once and three times of it are tried.", show_default="by the model")
    ] = None,
    split: Split = None,
    pool: Pool = None,
    queries: Queries = None,
    column: Column = None,
    skip_bad: SkipBad = 0,
    precision: Precision = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """The main job: pilot, estimate of K, training, comparison, and a page that shows why.

    \b
    Examples:
      negwise run --budget 5m
      negwise run --data pairs.jsonl --out jobs/pairs --budget 30m --seeds 3
      negwise run --data ratings.csv --schedule fixed --no-compare --steps 2000
    """
    with stopping():
        from negwise.jobs.job import Job
        from negwise.jobs.job import run as work

    asked = Job(
        data=data,
        columns=columns(column),
        model=model,
        schedule=schedule,
        budget=budget,
        steps=steps,
        seeds=seeds,
        compare=compare,
        lam=lam,
        batch_size=batch_size,
        learning_rate=learning_rate,
        split=split,
        pool=pool,
        queries=queries,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with stopping():
        results = work(asked, out, jobs=jobs, tell=tell)
    show_results(results, out, as_json)


def sweep(
    out: Annotated[Path, typer.Option(help="The sweep's folder; the same command again goes on.")],
    data: Data = "docs",
    k: Annotated[str, typer.Option(help="Numbers and schedules, with commas.")] = "1,4,20,100",
    model: Model = None,
    steps: Annotated[int | None, typer.Option(help="Updates of each run.", show_default="1000")] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each K.")] = 3,
    jobs: Jobs = None,
    batch_size: BatchSize = None,
    learning_rate: Annotated[
        str, typer.Option(help="Of several, with commas, each K keeps its best.", show_default="by the model")
    ] = "",
    split: Split = None,
    pool: Pool = None,
    queries: Queries = None,
    column: Column = None,
    skip_bad: SkipBad = 0,
    precision: Precision = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Train a grid of K, schedules and seeds; cells that are done stay done, and a failed one is shown as failed.

    \b
    Examples:
      negwise sweep --out sweeps/docs --k 1,4,20,100 --steps 300 --seeds 3
      negwise sweep --out sweeps/mine --data ratings.csv --k 1,20,warm:20,ans:20 --learning-rate 3e-4,1e-3,3e-3
    """
    with stopping():
        from negwise.jobs.job import Sweep
        from negwise.jobs.job import sweep as work

    rates = numbers("--learning-rate", learning_rate)
    asked = Sweep(
        data=data,
        columns=columns(column),
        k=tuple(part.strip() for part in k.split(",")),
        model=model,
        steps=steps,
        seeds=seeds,
        batch_size=batch_size,
        learning_rate=tuple(rates) if isinstance(rates, list) else rates,
        split=split,
        pool=pool,
        queries=queries,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with stopping():
        results = work(asked, out, jobs=jobs, tell=tell)
    show_results(results, out, as_json)

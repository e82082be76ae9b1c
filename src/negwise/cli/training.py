"""`data` and `train`: what is in a data set, and one run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from negwise.cli.options import Column, Data, Device, Json, Queries, SkipBad, Split
from negwise.cli.showing import speaks, stopping
from negwise.cli.words import columns, settings


def data(
    path: Annotated[str, typer.Argument(help="A file, a folder, or an embedded default: docs, clicks.")],
    column: Column = None,
    skip_bad: SkipBad = 0,
    as_json: Json = False,
) -> None:
    """Say what is in a data set: its size, the ceiling for K, example rows, problems.

    \b
    Examples:
      negwise data docs
      negwise data MINDsmall_train
      negwise data ratings.csv --skip-bad 10 --json
    """
    from negwise.datasets import inspect

    report = inspect(path, columns=columns(column), skip_bad=skip_bad)
    print(json.dumps(report.to_dict()) if as_json else report.explain())


def train(
    data: Data,
    model: Annotated[
        str,
        typer.Option(help="nrms, naml, lstur, siamese-transformer, siamese-cnn, siamese-lstm or bert4rec."),
    ],
    out: Annotated[Path, typer.Option(help="The run's folder; the same command again goes on.")],
    k: Annotated[str, typer.Option(help="A number, ans:PEAK or warm:PEAK.")] = "4",
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.", show_default="the paper's")] = None,
    steps: Annotated[int | None, typer.Option(help="Updates, instead of epochs.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.", show_default="the paper's")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of Adam.", show_default="the paper's")] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order, negatives and dropout.")] = 0,
    split: Split = None,
    pool: Annotated[int, typer.Option(help="Texts encoded a step, for every K.")] = 512,
    title_words: Annotated[int, typer.Option(help="Words of a title that the model sees.")] = 30,
    body_words: Annotated[int, typer.Option(help="Words of a body that the model sees.")] = 100,
    history: Annotated[int | None, typer.Option(help="Items of a user that the model sees.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option(help="An argument of the model, as dropout=0.1; repeatable.")
    ] = None,
    vectors: Annotated[str | None, typer.Option(help="Word vectors in GloVe's format.")] = None,
    queries: Queries = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between evaluations.", show_default="20 in all")] = None,
    column: Column = None,
    skip_bad: SkipBad = 0,
    precision: Annotated[str, typer.Option(help="32-true, bf16-mixed or 64-true.")] = "32-true",
    device: Device = "auto",
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log to TensorBoard too.")] = False,
    as_json: Json = False,
) -> None:
    """Train one model with one K, or a schedule of K; killed or stopped, the same command goes on.

    \b
    Examples:
      negwise train --data docs --model siamese-cnn --k warm:20 --steps 60 --eval-every 30 --body-words 20 --out runs/a
      negwise train --data clicks --model nrms --k 4 --steps 30 --eval-every 15 --queries 300 --out runs/b
      negwise train --data docs --model siamese-lstm --k ans:20 --steps 20 --eval-every 20 --body-words 20 --out runs/c
    """
    from negwise.jobs.training import Training
    from negwise.jobs.training import train as run

    asked = Training(
        data=data,
        columns=columns(column),
        model=model,
        k=k,
        epochs=epochs,
        steps=steps,
        batch_size=batch_size,
        learning_rate=learning_rate,
        seed=seed,
        split=split,
        pool=pool,
        title_words=title_words,
        body_words=body_words,
        history=history,
        settings=settings(setting),
        vectors=vectors,
        queries=queries,
        eval_every=eval_every,
        skip_bad=skip_bad,
        precision=precision,
        device=device,
    )
    with stopping():
        result = run(asked, out, tensorboard=tensorboard)
    if not speaks():
        return
    if as_json:
        print(json.dumps(result))
        return
    for name, scores in result["evaluations"].items():
        print(f"{name}: AUC {scores['auc']:.4f} +- {scores['auc_se']:.4f}")
    print(f"weights: {out / result['weights']}")

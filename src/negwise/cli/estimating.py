"""`estimate`: K from the AUC of a short run, or from its log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from negwise.cli.options import Json, Lam, StepColumn, TrainColumn, ValColumn
from negwise.cli.showing import show_estimate
from negwise.cli.words import numbers
from negwise.errors import InputError

if TYPE_CHECKING:
    from negwise.curves import Curves


def estimate(
    train_auc: Annotated[str, typer.Option(help="Training AUC under K=1: a number, or a curve as 0.6,0.7,...")] = "",
    val_auc: Annotated[str, typer.Option(help="Validation AUC: a final number, or a curve as 0.6,0.7,...")] = "",
    steps: Annotated[str, typer.Option(help="Steps of the curves, as 100,200,...")] = "",
    curves: Annotated[
        Path | None, typer.Option(help="A log, or a folder with one: CSV, TSV, JSONL, Lightning, Hugging Face.")
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Use the curve that ships with negwise.")] = False,
    queries: Annotated[int | None, typer.Option(help="Queries that each AUC rests on; gives the interval.")] = None,
    pairs: Annotated[
        int | None, typer.Option(help="(positive, negative) pairs that each AUC rests on, in all.")
    ] = None,
    lam: Lam = 0.9,
    max_k: Annotated[float | None, typer.Option(help="Where the search ends.", show_default="1e6")] = None,
    train_column: TrainColumn = None,
    val_column: ValColumn = None,
    step_column: StepColumn = None,
    plot: Annotated[Path | None, typer.Option(help="Write the figure here: .png, .svg, .csv or .json.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate the best K from the AUC of a short run with K=1.

    \b
    Examples:
      negwise estimate --train-auc 0.75
      negwise estimate --train-auc 0.96 --val-auc 0.7,0.83,0.88 --steps 1,2,4
      negwise estimate --curves lightning_logs/version_0 --plot estimate.png
      negwise estimate --curves run.jsonl --json
    """
    from negwise.theory.optimal_k import optimal_k

    options = {"lam": lam, "max_k": max_k, "n_queries": queries, "n_pairs": pairs}
    columns = {"train_auc": train_column, "val_auc": val_column, "step": step_column}
    train = numbers("--train-auc", train_auc)
    if example or curves is not None:
        if (example and curves is not None) or val_auc or steps:
            raise InputError("--curves, --example and --val-auc with --steps are different sources: pass one of them.")
        log = _read_log(_example() if curves is None else curves, columns, train)
        found = optimal_k(**{**options, **_from_log(log, train, queries, pairs)})  # type: ignore[arg-type]
        found = replace(found, reasons=(*log.caveats(), *found.reasons))
    else:
        if train is None:
            came = "no training AUC" if val_auc else "no AUC"
            raise InputError(
                f"got {came}. Type: negwise estimate --train-auc 0.75, or --curves FILE-OR-FOLDER, or --example."
            )
        if any(columns.values()):
            raise InputError(
                "--train-column, --val-column and --step-column name columns of a log: pass --curves FILE."
            )
        val = numbers("--val-auc", val_auc)
        if steps and not isinstance(train, list) and not isinstance(val, list):
            raise InputError("--steps: got steps without a curve. Pass a curve, as --val-auc 0.6,0.7,0.72.")
        found = optimal_k(train, val, steps=numbers("--steps", steps), **options)  # type: ignore[arg-type]
    if plot is not None:
        from negwise.report.estimate_figure import estimate_figure
        from negwise.report.figure import save_as

        print(f"figure: {save_as(estimate_figure(found), plot)}", file=sys.stderr)
    show_estimate(found, as_json)


def _example() -> Path:
    from importlib.resources import files

    return Path(str(files("negwise.curves") / "example.csv"))


def _read_log(path: Path, columns: Mapping[str, str | None], train_auc: object) -> Curves:
    """The curves of a log, with its training AUC or with the one on the command line, never with both."""
    from negwise.curves import read

    log = read(path, columns=columns)
    if train_auc is not None and log.train_auc is not None:
        raise InputError(
            f"{log.source}: its column {log.columns['train_auc']!r} is the training AUC, and --train-auc gives "
            "another. Pass one of them."
        )
    if train_auc is None and log.train_auc is None:
        perhaps = "".join(f" ({name!r} may be it: --train-column {name!r})" for name in log.unassigned)
        raise InputError(
            f"{log.source}: found no training AUC beside {log.columns.get('val_auc')!r}{perhaps}. "
            "Name its column with --train-column, or give it with --train-auc."
        )
    return log


def _from_log(log: Curves, train_auc: object, queries: int | None, pairs: int | None) -> dict[str, object]:
    """The arguments of optimal_k from a log; counts on the command line go before those in the file."""
    given: dict[str, object] = log.arguments()
    if train_auc is not None:
        given |= {"train_auc": train_auc, "train_steps": None}
    if queries is not None or pairs is not None:
        given = {name: value for name, value in given.items() if name not in log.precision()}
    return given

"""`report` and `explore`: pages to look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from negwise.cli.options import Json, StepColumn, TrainColumn, ValColumn


def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of jobs or runs, or logs of other frameworks.")],
    out: Annotated[Path | None, typer.Option(help="The page, or a folder for it.")] = None,
    train_column: TrainColumn = None,
    val_column: ValColumn = None,
    step_column: StepColumn = None,
    as_json: Json = False,
) -> None:
    """Make a page and figures from records alone; several folders are compared.

    \b
    Examples:
      negwise report negwise-run
      negwise report runs/a runs/b --out compare.html
      negwise report lightning_logs/version_0
    """
    from negwise.report.build import build

    page = build(paths, out, {"train_auc": train_column, "val_auc": val_column, "step": step_column})
    print(json.dumps({"page": str(page)}) if as_json else f"report: {page}")


def explore(
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("explore.html"),
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open it in a browser.")] = True,
    as_json: Json = False,
) -> None:
    """The framework as an interactive page: move AUC and lambda, paste a curve, see K* move.

    \b
    Examples:
      negwise explore
      negwise explore --out explore.html --no-open
    """
    from negwise.report.explore import write_explore

    page = write_explore(out)
    print(json.dumps({"page": str(page)}) if as_json else f"page: {page}")
    if show and not as_json:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())

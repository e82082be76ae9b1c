"""`reproduce`: the paper's figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from negwise.cli.options import Json
from negwise.cli.showing import show_files, tell

app = typer.Typer(
    help="Remake the paper's figures by name. Its tasks run from a clone: python -m evidence.", no_args_is_help=True
)


@app.command("theory")
def reproduce_theory(
    out: Annotated[Path, typer.Option(help="Folder for the figures.")] = Path("theory"),
    as_json: Json = False,
) -> None:
    """Make the paper's model-free figures: PNG, SVG and a CSV of the numbers of each.

    \b
    Example:
      negwise reproduce theory --out figures
    """
    from negwise.report import paper_figures

    def made(name: str, done: int, total: int) -> None:
        tell(f"[{done + 1}/{total}] {name}")

    show_files(paper_figures.reproduce_theory(out, made), as_json)

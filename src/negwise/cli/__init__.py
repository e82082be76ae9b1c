"""The command line: verbs only. Each parses its words, calls one function and shows the result."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import negwise
from negwise.cli import reproducing
from negwise.cli.estimating import estimate
from negwise.cli.jobs import run, sweep
from negwise.cli.pages import explore, report
from negwise.cli.training import data, train
from negwise.errors import InputError, NegwiseError

app = typer.Typer(
    name="negwise",
    help="How many negative samples do you need? Estimate the K of InfoNCE from the AUC curves of one short run.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for verb in (estimate, data, train, run, sweep, report, explore):
    app.command()(verb)
app.add_typer(reproducing.app, name="reproduce")


def main() -> None:
    """Run the command line: exit 0 when done, 1 when the work failed, 2 when the request was wrong."""
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except (NegwiseError, OSError) as error:
        _fail(error, 1)


def _fail(error: Exception, code: int) -> None:
    said = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        said = f"{error.filename}: {error.strerror}"
    print(f"negwise: {said}", file=sys.stderr)
    raise SystemExit(code) from error


def _version(asked: bool) -> None:
    if asked:
        print(f"negwise {negwise.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass

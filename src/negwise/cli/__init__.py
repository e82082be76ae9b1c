"""The command line: verbs only. Each parses its words, calls one function and shows the result."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import negwise
from negwise.cli import model_verbs, page_verbs, schedule_verb, training_verbs
from negwise.cli.commands import command
from negwise.cli.streams import safe_streams
from negwise.errors import InputError, NegwiseError, missing_extra
from negwise.requests import (
    DataRequest,
    EncodeRequest,
    EstimateRequest,
    ExploreRequest,
    ExportRequest,
    RecommendRequest,
    ReportRequest,
    ReproduceRequest,
    RunRequest,
    ScheduleRequest,
    SweepRequest,
    TrainRequest,
)

app = typer.Typer(
    name="negwise",
    help="How many negatives does InfoNCE need? Train with the right K, or estimate it. Start: negwise run --budget 5m",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for kind, work in (
    (EstimateRequest, page_verbs.estimate_verb),
    (ScheduleRequest, schedule_verb.schedule_verb),
    (DataRequest, training_verbs.data_verb),
    (TrainRequest, training_verbs.train_verb),
    (RunRequest, training_verbs.run_verb),
    (SweepRequest, training_verbs.sweep_verb),
    (EncodeRequest, model_verbs.encode_verb),
    (RecommendRequest, model_verbs.recommend_verb),
    (ExportRequest, model_verbs.export_verb),
    (ReportRequest, page_verbs.report_verb),
    (ExploreRequest, page_verbs.explore_verb),
):
    app.command()(command(kind, work))
reproduce = typer.Typer(help="Draw the paper's figures. To repeat its experiments, run python -m evidence in a clone.")
reproduce.command()(command(ReproduceRequest, page_verbs.theory_verb))
reproduce.callback()(lambda: None)  # a verb of its own, though there is only one
app.add_typer(reproduce, name="reproduce", no_args_is_help=True)


def main() -> None:
    """Run the command line: exit 0 when done, 1 when the work failed, 2 when the request was wrong."""
    try:
        with safe_streams():
            _run()
    except BrokenPipeError:
        raise SystemExit(1) from None


def _run() -> None:
    try:
        app()
    except InputError as error:
        _fail(error, 2)
    except BrokenPipeError:
        raise
    except (NegwiseError, OSError) as error:
        _fail(error, 1)
    except ModuleNotFoundError as error:
        extra = missing_extra(error)
        if extra is None:  # a broken install, which has to surface as it is
            raise
        _fail(extra, 1)


def _fail(error: Exception, code: int) -> None:
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    print(f"negwise: {message}", file=sys.stderr)
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

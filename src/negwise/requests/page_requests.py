"""What can be asked of logs and records: an estimate, a look at data, pages and figures."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.errors import InputError
from negwise.requests.option_fields import check_choice, check_count, option, parse_columns

_TRAIN_COLUMN = "The column of the training AUC in a log."
_VAL_COLUMN = "The column of the validation AUC in a log."
_STEP_COLUMN = "The column of the steps in a log."
_RUN = "The run to read, by name or id, if a folder or an MLflow database has several."


def _numbers(flag: str) -> object:
    """A parser of one number or several, with commas, for the option ``flag``."""

    def parse(text: str) -> float | tuple[float, ...] | None:
        if not text.strip():
            return None
        try:
            values = tuple(float(part) for part in text.split(","))
        except ValueError as error:
            raise InputError(
                f"{flag}: got {text!r}, expected a number or numbers with commas, as 0.61,0.68,0.7."
            ) from error
        return values[0] if len(values) == 1 else values

    return parse


@dataclass(frozen=True, kw_only=True)
class EstimateRequest:
    """K from the AUC of a short run with K = 1, or from its log."""

    log: str | None = option(None, help="A log, a folder with a log, or - for standard input.", argument=True)
    train_auc: float | tuple[float, ...] | None = option(
        None,
        parse=_numbers("--train-auc"),
        help="Training AUC of a run with K = 1: a number, or a curve such as 0.6,0.7,0.72.",
    )
    val_auc: float | tuple[float, ...] | None = option(
        None, parse=_numbers("--val-auc"), help="Validation AUC: the final number, or a curve such as 0.6,0.7,0.72."
    )
    steps: float | tuple[float, ...] | None = option(
        None, parse=_numbers("--steps"), help="Steps of the curves, such as 100,200,400."
    )
    curves: str | None = option(None, help="The same as LOG.")
    run: str | None = option(None, help=_RUN)
    example: bool = option(False, flag="--example", help="Use the curves that ship with negwise.")
    queries: int | None = option(None, help="The number of queries behind each AUC. It gives the interval.")
    pairs: int | None = option(None, help="The number of (positive, negative) pairs behind each AUC, in all.")
    lam: float = option(0.9, help="Weight of good and bad samples against easy ones, from 0.5 to 1.")
    max_k: float | None = option(None, help="The largest K of the search.", show_default="1e6")
    train_column: str | None = option(None, help=_TRAIN_COLUMN)
    val_column: str | None = option(None, help=_VAL_COLUMN)
    step_column: str | None = option(None, help=_STEP_COLUMN)
    plot: str | None = option(None, help="Draw the figure into this file: .png, .svg, .csv or .json.")


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """What is in a data set."""

    data: str = option(help="A file, a folder, or data that ships with negwise: docs, clicks.", argument=True)
    columns: dict[str, str] = option(
        default_factory=dict, flag="--column", parse=parse_columns, repeatable=True,
        help="ROLE=COLUMN, such as user=customer. May be repeated.",
    )  # fmt: skip
    positive: str | None = option(
        None, help="Which rows are positives, such as rating>=4.", show_default="all, or by label"
    )
    skip_bad: int = option(0, help="Skip up to this many bad rows of the data. Each is reported.")


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """A page from records. Several folders are compared."""

    paths: tuple[str, ...] = option(
        help="Folders of jobs or runs, or logs of other frameworks.", argument=True, repeatable=True, parse=tuple
    )
    out: str | None = option(None, help="A file for the page, or a folder.")
    run: str | None = option(None, help=_RUN)
    train_column: str | None = option(None, help=_TRAIN_COLUMN)
    val_column: str | None = option(None, help=_VAL_COLUMN)
    step_column: str | None = option(None, help=_STEP_COLUMN)


@dataclass(frozen=True, kw_only=True)
class ExploreRequest:
    """The theory as an interactive page."""

    out: str = option("explore.html", help="Where the page goes.")
    open: bool = option(True, flag="--open/--no-open", help="Open it in a browser.")


@dataclass(frozen=True, kw_only=True)
class ReproduceRequest:
    """The paper's figures that need no model."""

    out: str = option("theory", help="Folder for the figures.")


SHAPES = ("warm", "ans")
FORMATS = ("csv", "json")


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """K for each step."""

    peak: float = option(help="The largest K, such as the one of negwise estimate.")
    steps: int = option(help="Optimizer steps of the whole training.")
    shape: str = option(
        "warm", help="warm: K rises to the peak and stays. ans: the paper's, K rises and falls back to 1."
    )
    turn: float = option(0.1, help="The share of the steps after which K reaches its peak.")
    format: str | None = option(None, help="csv or json.", show_default="csv")

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_choice("shape", self.shape, SHAPES)
        check_choice("format", self.format, FORMATS)

"""What can be asked of logs and records: an estimate, a look at data, pages and figures."""

from __future__ import annotations

from dataclasses import dataclass

from negwise.errors import InputError
from negwise.requests.option_fields import check_choice, check_count, option, parse_columns

_TRAIN_COLUMN = "Column of the training AUC in a log."
_VAL_COLUMN = "Column of the validation AUC in a log."
_STEP_COLUMN = "Column of the steps in a log."
_RUN = "Which run, by name or id, where a folder or an MLflow database has several."


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

    log: str | None = option(None, help="A log, a folder with one, or - for standard input.", argument=True)
    train_auc: float | tuple[float, ...] | None = option(
        None, parse=_numbers("--train-auc"), help="Training AUC under K=1: a number, or a curve as 0.6,0.7,..."
    )
    val_auc: float | tuple[float, ...] | None = option(
        None, parse=_numbers("--val-auc"), help="Validation AUC: a final number, or a curve as 0.6,0.7,..."
    )
    steps: float | tuple[float, ...] | None = option(
        None, parse=_numbers("--steps"), help="Steps of the curves, as 100,200,..."
    )
    curves: str | None = option(None, help="The log, as an option.")
    run: str | None = option(None, help=_RUN)
    example: bool = option(False, flag="--example", help="Use the curve that ships with negwise.")
    queries: int | None = option(None, help="Queries that each AUC rests on; gives the interval.")
    pairs: int | None = option(None, help="(positive, negative) pairs that each AUC rests on, in all.")
    lam: float = option(0.9, help="Weight of good and bad samples, 0.5 to 1.")
    max_k: float | None = option(None, help="Largest K to search.", show_default="1e6")
    train_column: str | None = option(None, help=_TRAIN_COLUMN)
    val_column: str | None = option(None, help=_VAL_COLUMN)
    step_column: str | None = option(None, help=_STEP_COLUMN)
    plot: str | None = option(None, help="Write the figure here: .png, .svg, .csv or .json.")


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """What is in a data set."""

    data: str = option(help="A file, a folder, or an embedded default: docs, clicks.", argument=True)
    columns: dict[str, str] = option(
        default_factory=dict, flag="--column", parse=parse_columns, repeatable=True,
        help="Which column plays a role, as user=customer; repeatable.",
    )  # fmt: skip
    positive: str | None = option(None, help="Which rows are positives, as rating>=4.", show_default="all, or by label")
    skip_bad: int = option(0, help="Skip up to this many bad rows of the data, and report each.")


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """A page from records; several folders are compared."""

    paths: tuple[str, ...] = option(
        help="Folders of jobs or runs, or logs of other frameworks.", argument=True, repeatable=True, parse=tuple
    )
    out: str | None = option(None, help="The page, or a folder for it.")
    run: str | None = option(None, help=_RUN)
    train_column: str | None = option(None, help=_TRAIN_COLUMN)
    val_column: str | None = option(None, help=_VAL_COLUMN)
    step_column: str | None = option(None, help=_STEP_COLUMN)


@dataclass(frozen=True, kw_only=True)
class ExploreRequest:
    """The framework as an interactive page."""

    out: str = option("explore.html", help="Where the page goes.")
    open: bool = option(True, flag="--open/--no-open", help="Open it in a browser.")


@dataclass(frozen=True, kw_only=True)
class ReproduceRequest:
    """The paper's model-free figures."""

    out: str = option("theory", help="Folder for the figures.")


SHAPES = ("warm", "ans")
FORMATS = ("csv", "json")


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """K for each step."""

    peak: float = option(help="The largest K, as negwise estimate gives it.")
    steps: int = option(help="Optimizer steps of the whole training.")
    shape: str = option("warm", help="warm: up to the peak, then constant. ans: the paper's, up and back to 1.")
    turn: float = option(0.1, help="The share of the steps after which K is at its peak.")
    format: str | None = option(None, help="csv or json.", show_default="csv")

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_choice("shape", self.shape, SHAPES)
        check_choice("format", self.format, FORMATS)

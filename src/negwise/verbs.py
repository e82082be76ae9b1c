"""The verbs of the command line as functions: the same names, defaults and meanings, and a result object each::

    result = nw.train("ratings.csv", k=20, steps=2000, out="runs/a")
    result.record.evaluations["test"].auc

Options are the fields of the verb's request type (`negwise.requests`): ``help(nw.train)`` lists them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from difflib import get_close_matches
from os import PathLike, fspath
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from negwise.errors import InputError
from negwise.requests import DataRequest, Option, RunRequest, SweepRequest, TrainRequest, options_of
from negwise.stages import signs_of_life

if TYPE_CHECKING:
    from negwise.datasets import DataReport
    from negwise.jobs import JobResult, TrainResult

Data = Any
"""A path, a name, a pandas or polars frame, an Arrow table, a Hugging Face dataset, a list of dictionaries."""
Verb = Callable[..., Any]


def _with_options_of(kind: type) -> Callable[[Verb], Verb]:
    """Give a verb the signature and the help of its request type ``kind``."""

    def decorate(verb: Verb) -> Verb:
        own = inspect.signature(verb)
        hints = get_type_hints(kind)
        parameters = [own.parameters["data"]]
        for one in fields(kind):
            if one.name != "data":
                empty = inspect.Parameter.empty
                made = one.default_factory() if one.default_factory is not MISSING else empty
                default = made if one.default is MISSING else one.default
                parameters.append(
                    inspect.Parameter(
                        one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hints[one.name]
                    )
                )
        verb.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        lines = [f"    - ``{name}``: {option.help}" for name, option in options_of(kind).items() if name != "data"]
        verb.__doc__ = "\n".join([f"{verb.__doc__}", "", "    Options:", "", *lines, "    "])
        return verb

    return decorate


@_with_options_of(DataRequest)
def data(data: Data, **options: Any) -> DataReport:
    """Show what is in a data set: columns, size, how large K can be, example rows, problems."""
    from negwise.datasets import inspect as inspect_data

    request = make_request(DataRequest, data, options)
    with signs_of_life():
        return inspect_data(request.data, columns=request.columns, positive=request.positive, skip_bad=request.skip_bad)


@_with_options_of(TrainRequest)
def train(data: Data, **options: Any) -> TrainResult:
    """Train one model with one rule for K. The same call again resumes, or returns the result."""
    from negwise.jobs import train_run

    with signs_of_life():
        return train_run(make_request(TrainRequest, data, options))


@_with_options_of(RunRequest)
def run(data: Data = "docs", **options: Any) -> JobResult:
    """Train one model on your data in the time that you give it. The same call again resumes the job."""
    from negwise.jobs import run_job

    with signs_of_life():
        return run_job(make_request(RunRequest, data, options))


@_with_options_of(SweepRequest)
def sweep(data: Data = "docs", **options: Any) -> JobResult:
    """Train a grid of K, schedules and seeds. The same call again resumes it."""
    from negwise.jobs import run_sweep

    with signs_of_life():
        return run_sweep(make_request(SweepRequest, data, options))


def make_request(kind: type, data: Data, options: dict[str, Any]) -> Any:
    """A request from Python values: ``k=20`` is ``"20"``, a path is its text, a list is a tuple."""
    hints, known = get_type_hints(kind), options_of(kind)
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            guess = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}."
            raise InputError(f"{name}: got an option that is not known; {guess}")
    for one in fields(kind):
        if one.name not in options and one.name != "data" and one.default is one.default_factory is MISSING:
            raise InputError(f"{one.name}: got nothing, expected a value: {known[one.name].help}")
    if not isinstance(data, str | PathLike):
        from negwise.datasets import as_path

        data = as_path(data)  # a frame becomes a file of the cache: a job can resume, and its workers find it
    given = {"data": data, **options}
    return kind(**{name: _as_declared(name, value, hints[name], known[name]) for name, value in given.items()})


def _as_declared(name: str, value: Any, hint: Any, option: Option) -> Any:
    """``value`` as a field of type ``hint`` holds it; the request checks the rest."""
    if isinstance(value, str) and option.parse is not None and not option.repeatable:
        return option.parse(value)
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None and NoneType in kinds:
        return None
    origins = [get_origin(kind) or kind for kind in kinds]
    if tuple in origins:
        values = value if isinstance(value, list | tuple) else (value,)
        inner = get_args(kinds[origins.index(tuple)])[0]
        return tuple(_as_text(name, one) if inner is str else one for one in values)
    if str in origins:
        return _as_text(name, value)
    for needed, words in ((bool, "True or False"), (dict, "a dictionary")):
        if needed in origins and not isinstance(value, needed):
            raise InputError(f"{name}: got {value!r}, expected {words}.")
    return value


def _as_text(name: str, value: Any) -> str:
    if isinstance(value, str | PathLike):
        return fspath(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise InputError(f"{name}: got {value!r} of type {type(value).__name__}, expected a text.")

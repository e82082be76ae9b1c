"""Runs of MLflow: its database (SQLite), and its file store, a folder for each run. MLflow itself is not needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from negwise.curves.cells import finite_float
from negwise.curves.column_roles import quantity_of, words_of_column
from negwise.curves.log_files import MAX_QUOTED, LogTable
from negwise.curves.log_folders import mlflow_run_name
from negwise.curves.scalar_series import table_of_series
from negwise.curves.trained_k import k_of_settings
from negwise.errors import InputError, quote

RUNS = """
select runs.run_uuid, runs.name, experiments.name from runs
left join experiments on experiments.experiment_id = runs.experiment_id
where coalesce(runs.lifecycle_stage, 'active') != 'deleted' order by runs.start_time, runs.run_uuid
"""
METRICS = "select key, step, value, is_nan from metrics where run_uuid = ? order by timestamp, rowid"
KEYS = "select distinct run_uuid, key from metrics"
PARAMS = "select key, value from params where run_uuid = ?"

Points = dict[str, list[tuple[int, float]]]


class StoredRun(NamedTuple):
    """One run of a database."""

    id: str
    name: str | None
    experiment: str | None

    def __str__(self) -> str:
        return f"{self.id} ({self.name or 'no name'}, experiment {self.experiment or 'without a name'})"


def read_database(source: str, place: Path | bytes, run: str | None) -> LogTable:
    """The metrics of the run ``run``, an id or a name, or of the only run with an AUC.

    A database in a file is opened for reading only; a run may be writing to it. Else ``place`` is its content.
    """
    try:
        with _open(place) as database:
            chosen = _choose(source, database, run)
            series: Points = {}
            for key, step, value, is_nan in database.execute(METRICS, (chosen.id,)):
                if not (isinstance(key, str) and isinstance(step, int) and isinstance(value, int | float)):
                    found = f"{quote(key)}, {quote(step)}, {quote(value)}"
                    raise sqlite3.DataError(f"a metric of {found}, expected a name, a step and a value")
                series.setdefault(key, []).append((step, float("nan") if is_nan else value))
            k = k_of_settings({str(key): value for key, value in database.execute(PARAMS, (chosen.id,))})
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise InputError(
            f"{source}: a database that is broken or not one of MLflow ({error}). Expected its tables runs, "
            "experiments, metrics and params."
        ) from error
    return replace(table_of_series(f"{source}, run {chosen.name or chosen.id}", "mlflow", series), trained_k=k)


def read_run_folder(folder: Path) -> LogTable:
    """The metrics of a run in the file store: ``metrics/NAME`` has lines of time, value and step."""
    series: Points = {}
    for file in sorted(file for file in (folder / "metrics").rglob("*") if file.is_file()):
        series[file.relative_to(folder / "metrics").as_posix()] = _read_metric(file)
    if not series:
        raise InputError(f"{folder}: nothing logged yet: the run has no metrics.")
    params = {file.name: _text(file) for file in sorted((folder / "params").glob("*")) if file.is_file()}
    source = f"{folder}, run {mlflow_run_name(folder) or folder.name}"
    return replace(table_of_series(source, "mlflow", series), trained_k=k_of_settings(params))


@contextmanager
def _open(place: Path | bytes) -> Iterator[sqlite3.Connection]:
    uri = f"{place.resolve().as_uri()}?mode=ro" if isinstance(place, Path) else "file::memory:"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        if isinstance(place, bytes):
            database.deserialize(place)
        yield database


def _choose(source: str, database: sqlite3.Connection, run: str | None) -> StoredRun:
    runs = [StoredRun(*row) for row in database.execute(RUNS)]
    if run is not None:
        chosen = [one for one in runs if run == one.id] or [one for one in runs if run == one.name]
        if len(chosen) != 1:
            came = "no run has that name or id" if not chosen else f"{len(chosen)} runs have that name"
            raise InputError(f"{source}: --run {quote(run)}: {came}. It has {_listed(chosen or runs)}")
        return chosen[0]
    keys = database.execute(KEYS).fetchall()
    measured = {uuid for uuid, key in keys if quantity_of(words_of_column(str(key))) == "auc"}
    candidates = [one for one in runs if one.id in measured] or runs
    if not candidates:
        raise InputError(f"{source}: nothing logged yet: the database has no runs.")
    if len(candidates) > 1:
        raise InputError(f"{source}: {_listed(candidates)}")
    return candidates[0]


def _listed(runs: list[StoredRun]) -> str:
    if not runs:
        return "no runs."
    more = f" and {len(runs) - MAX_QUOTED} more" if len(runs) > MAX_QUOTED else ""
    shown = ", ".join(map(str, runs[:MAX_QUOTED]))
    return f"{len(runs)} runs: {shown}{more}. To choose, type --run {runs[0].id} (in Python: run={runs[0].id!r})."


def _read_metric(file: Path) -> list[tuple[int, float]]:
    """(step, value) of each line: time, value, step, and perhaps the data set. A line without a step is at step 0."""
    points = []
    for number, line in enumerate(_text(file).splitlines(), start=1):
        if not line.strip():
            continue
        _, *cells = line.split(" ")
        value = float("nan") if cells[:1] == ["nan"] else finite_float(cells[0] if cells else "")
        step = finite_float(cells[1]) if len(cells) > 1 else 0.0
        if cells[:1] in (["inf"], ["-inf"]):
            value = float(cells[0])
        if value is None or step is None or step != int(step):
            raise InputError(
                f"{file}, line {number}: {quote(line)}, expected a time, a value and a step, as 1700000000000 0.75 100."
            )
        points.append((int(step), value))
    return points


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}).") from error

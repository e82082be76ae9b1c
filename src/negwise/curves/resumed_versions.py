"""Lightning starts a new ``version_N`` when a run is resumed: several logs of one run, put together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from negwise.curves.cells import finite_float
from negwise.curves.column_roles import quantity_of, words_of_column
from negwise.curves.log_files import LogRow, LogTable, is_blank
from negwise.curves.log_folders import several_logs_error

HYPERPARAMETERS = "hparams.yaml"


def are_versions(logs: Sequence[Path]) -> bool:
    """Whether ``logs`` are those of ``version_0``, ``version_1``, ... beside each other."""
    folders = [_folder(log) for log in logs]
    numbers = [_number(folder) for folder in folders]
    return len({folder.parent for folder in folders}) == 1 and None not in numbers and len(set(numbers)) == len(logs)


def join_versions(path: Path, logs: Sequence[Path], read: Callable[[Path], LogTable]) -> LogTable:
    """One table of versions that continue each other; an error that lists them if they are separate runs.

    A version continues the run if its first step lies after the first step of the run and its hyper-parameters are the
    same. From its first step on it replaces what came before.
    """
    logs = sorted(logs, key=lambda log: _number(_folder(log)) or 0)
    tables = [read(log) for log in logs]
    names = [_folder(log).name for log in logs]
    stepped = [_with_steps(table) for table in tables]
    found = [rows for rows in stepped if rows]
    if len(found) < len(logs):
        raise several_logs_error(path, list(logs), " One of them has no steps, so that they cannot be put in order.")
    starts = [min(step for step, _ in rows) for rows in found]
    for number in range(1, len(logs)):
        if starts[number] <= starts[0]:
            why = f"starts at step {starts[number]:g}, {names[0]} at {starts[0]:g}: it is a run of its own"
        elif _hyperparameters(logs[number]) != _hyperparameters(logs[number - 1]):
            why = f"has another {HYPERPARAMETERS} than {names[number - 1]}: it is a run of its own"
        else:
            continue
        raise several_logs_error(path, list(logs), f" {names[number]} {why}.")
    rows: list[tuple[float, LogRow]] = []
    for name, start, own in zip(names, starts, found, strict=True):
        rows = [one for one in rows if one[0] < start]
        rows += [(step, LogRow(f"{name}, {row.where}", row.cells)) for step, row in own]
    columns = dict.fromkeys(column for table in tables for column in table.names)
    said = ", ".join(f"{name} from step {start:g}" for name, start in zip(names, starts, strict=True))
    note = (
        f"Read {len(logs)} versions as one run that was resumed: {said}. Where two have the same steps, the later one "
        "counts. To read one alone, pass its folder."
    )
    notes = (note, *(note for table in tables for note in table.notes))
    return LogTable(str(path), tables[0].kind, tuple(columns), tuple(row for _, row in rows), notes=notes)


def _folder(log: Path) -> Path:
    return log if log.is_dir() else log.parent


def _number(folder: Path) -> int | None:
    match = re.fullmatch(r"version_([0-9]{1,9})", folder.name)
    return int(match[1]) if match else None


def _hyperparameters(log: Path) -> bytes | None:
    file = _folder(log) / HYPERPARAMETERS
    return file.read_bytes() if file.is_file() else None


def _with_steps(table: LogTable) -> list[tuple[float, LogRow]] | None:
    """Each row with its step; None if the table has no column of steps, or several, or a row without one."""
    columns = [name for name in table.names if quantity_of(words_of_column(name)) == "step"]
    if len(columns) != 1:
        return None
    found = []
    for row in table.rows:
        step = finite_float(row.cells.get(columns[0]))
        if step is None:
            return None
        if not _is_placeholder(row, columns[0]):
            found.append((step, row))
    return found


def _is_placeholder(row: LogRow, step: str) -> bool:
    """Whether a row has only ``hp_metric``, which Lightning's TensorBoardLogger puts at step 0 of every version."""
    logged = [name for name, cell in row.cells.items() if name != step and not is_blank(cell)]
    return bool(logged) and all("hp" in words_of_column(name) for name in logged)

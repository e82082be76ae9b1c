"""From what was passed to the table of its log: a path, standard input, or records in memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from negwise.curves.delimited_logs import parse_delimited
from negwise.curves.json_logs import looks_like_json, parse_json
from negwise.curves.log_files import STANDARD_INPUT, LogTable, decode_text, read_file, read_standard_input
from negwise.curves.log_folders import (
    SQLITE_START,
    choose_run,
    find_logs,
    is_database,
    is_mlflow_run,
    several_logs_error,
)
from negwise.curves.memory_logs import parse_memory
from negwise.curves.resumed_versions import are_versions, join_versions
from negwise.curves.tensorboard_logs import is_events, parse_events, read_event_folder
from negwise.curves.wandb_offline import is_wandb_run, parse_wandb_run
from negwise.errors import InputError, quote


def open_log(log: Any, run: str | None) -> LogTable:
    """The table of ``log``. ``run`` chooses among several runs of a folder or of a database."""
    if not isinstance(log, str | os.PathLike):
        _refuse_run(run, "records in memory")
        return parse_memory(log)
    if os.fspath(log) == STANDARD_INPUT:
        return _parse("standard input", read_standard_input(), run)
    path = Path(log)
    found = find_logs(path)
    if len(found) > 1 and run is not None:
        return _read(choose_run(path, found, run), None)
    if len(found) > 1 and are_versions(found):
        return join_versions(path, found, partial(_read, run=None))
    if len(found) > 1:
        raise several_logs_error(path, found)
    return _read(found[0], run)


def _read(log: Path, run: str | None) -> LogTable:
    if log.is_file():
        return _read_database(str(log), log, run) if is_database(log) else _parse(str(log), read_file(log), run)
    _refuse_run(run, f"{log}, which is one run")
    if is_mlflow_run(log):
        from negwise.curves.mlflow_logs import read_run_folder

        return read_run_folder(log)
    return read_event_folder(log)


def _parse(source: str, data: bytes, run: str | None) -> LogTable:
    """The table of ``data``: its first bytes tell what it is."""
    if data.startswith(SQLITE_START):
        return _read_database(source, data, run)
    _refuse_run(run, source)
    if is_events(data):
        return parse_events(source, data)
    if is_wandb_run(data):
        return parse_wandb_run(source, data)
    text = decode_text(source, data)
    parse = parse_json if looks_like_json(text) else parse_delimited
    return parse(source, text)


def _read_database(source: str, place: Path | bytes, run: str | None) -> LogTable:
    from negwise.curves.mlflow_logs import read_database  # sqlite3 is not needed for other logs

    return read_database(source, place, run)


def _refuse_run(run: str | None, source: str) -> None:
    if run is not None:
        raise InputError(
            f"--run {quote(run)}: it chooses among the runs of a folder or of a database of MLflow, not in {source}. "
            "Leave it out."
        )

"""From what was passed to the table of its log: a path, standard input, or records in memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

from negwise.curves.delimited_logs import parse_delimited
from negwise.curves.json_logs import looks_like_json, parse_json
from negwise.curves.log_files import STANDARD_INPUT, LogTable, decode_text, read_file, read_standard_input
from negwise.curves.log_folders import choose_run, find_logs, is_mlflow_run, several_logs_error
from negwise.curves.memory_logs import parse_memory
from negwise.curves.resumed_versions import are_versions, join_versions
from negwise.errors import InputError, quote


def open_log(log: Any, run: str | None) -> LogTable:
    """The table of ``log``. ``run`` chooses among several runs of a folder or of a database."""
    if not isinstance(log, str | os.PathLike):
        _refuse_run(run, "records in memory")
        return parse_memory(log)
    if os.fspath(log) == STANDARD_INPUT:
        return _parse("standard input", read_standard_input(), None, run)
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
        return _parse(str(log), read_file(log), log, run)
    _refuse_run(run, f"{log}, which is one run")
    if is_mlflow_run(log):
        from negwise.curves.mlflow_logs import read_run_folder

        return read_run_folder(log)
    from negwise.curves.tensorboard_logs import read_event_folder

    return read_event_folder(log)


def _parse(source: str, data: bytes, file: Path | None, run: str | None) -> LogTable:
    """The table of ``data``: its first bytes tell what it is. ``file`` is where it lies, if it was not unpacked."""
    from negwise.curves import mlflow_logs, tensorboard_logs, wandb_offline

    if mlflow_logs.is_database(data):
        plain = file if file is not None and file.stat().st_size == len(data) else None
        return mlflow_logs.read_database(source, data, plain, run)
    _refuse_run(run, source)
    if tensorboard_logs.is_events(data):
        return tensorboard_logs.parse_events(source, data)
    if wandb_offline.is_wandb_run(data):
        return wandb_offline.parse_wandb_run(source, data)
    text = decode_text(source, data)
    parse = parse_json if looks_like_json(text) else parse_delimited
    return parse(source, text)


def _refuse_run(run: str | None, source: str) -> None:
    if run is not None:
        raise InputError(
            f"--run {quote(run)}: it chooses among the runs of a folder or of a database of MLflow, not in {source}. "
            "Leave it out."
        )

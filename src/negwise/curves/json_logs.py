"""Parse logs of JSON objects: negwise's own run.jsonl, other JSON lines, Hugging Face's trainer_state.json."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from negwise.curves.log_files import MAX_EXACT_COUNT, LogRow, LogTable, is_blank
from negwise.errors import InputError, quote

RUN_RECORD_KINDS = ("step", "eval", "event")


def looks_like_json(text: str) -> bool:
    """Whether the text starts with an object or a list of them. A column name such as "[val] auc" is no list."""
    return re.match(r"\s*(\{|\[\s*\{)", text) is not None


def parse_json(source: str, text: str) -> LogTable:
    """Parse JSON lines (one object per line), or one document with a ``log_history``."""
    try:
        first = json.loads(text.lstrip().split("\n", 1)[0])
    except (ValueError, RecursionError):
        first = None  # an indented document, or a broken one
    if isinstance(first, dict) and "log_history" not in first:
        return _json_lines(source, text)
    return _trainer_state(source, text)


def _json_lines(source: str, text: str) -> LogTable:
    rows = []
    lines = text.split("\n")  # not splitlines: JSON strings may hold the other line separators
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):  # no newline yet: the writer was stopped, or is still writing
                break
            raise InputError(f"{source}, line {number}: not JSON ({_json_fault(error)}). Delete it.") from error
        rows.append(_log_row(source, f"line {number}", record))
    if any(row.cells.get("kind") in RUN_RECORD_KINDS for row in rows):
        table = _log_table(source, "run", _evaluations(source, rows))
        ks = [row.cells.get("k") for row in rows if row.cells.get("kind") == "step"]
        numbers = [float(k) for k in ks if isinstance(k, int | float) and 0 <= k <= MAX_EXACT_COUNT]
        return replace(table, trained_k=(min(numbers), max(numbers))) if numbers else table
    return _log_table(source, "jsonl", rows)


def _evaluations(source: str, rows: list[LogRow]) -> list[LogRow]:
    """The evaluations of a run.jsonl, with one cell per split and quantity: ``val/auc``, ``val/queries``, ...

    A run that resumes at step s repeats the steps after s, so earlier records of those steps are dropped.
    """
    evaluations: list[tuple[float, LogRow]] = []
    for row in rows:
        kind, event, split = (row.cells.get(name) for name in ("kind", "event", "split"))
        if kind == "event" and event == "resume":
            resumed = _step_of(source, row)
            evaluations = [(step, evaluation) for step, evaluation in evaluations if step <= resumed]
        elif kind == "eval":
            if not isinstance(split, str) or is_blank(split):
                raise InputError(
                    f'{source}, {row.where}: "split" must be text ("train", "val", ...), not {quote(split)}.'
                )
            step = _step_of(source, row)
            cells = {f"{split}/{name}": row.cells.get(name) for name in ("auc", "auc_se", "queries", "pairs")}
            evaluations.append((step, LogRow(row.where, {"step": step, **cells})))
    return [evaluation for _, evaluation in evaluations]


def _step_of(source: str, row: LogRow) -> float:
    step = row.cells.get("step")
    if isinstance(step, bool) or not isinstance(step, int | float) or step != step:
        raise InputError(f'{source}, {row.where}: "step" must be a number, not {quote(step)}.')
    return step


def _trainer_state(source: str, text: str) -> LogTable:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{source}{line}: not JSON ({_json_fault(error)}). Pass a complete file.") from error
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list):
        raise InputError(
            f'{source}: JSON without a list "log_history". Pass a Hugging Face trainer_state.json, '
            "or JSON lines (one object on each line)."
        )
    rows = [_log_row(source, f"log_history[{index}]", entry) for index, entry in enumerate(history)]
    return _log_table(source, "trainer_state", rows)


def _log_row(source: str, where: str, record: object) -> LogRow:
    if not isinstance(record, dict):
        raise InputError(f"{source}, {where}: expected a JSON object, not {quote(record)}.")
    return LogRow(where, record)


def _log_table(source: str, kind: str, rows: list[LogRow]) -> LogTable:
    names = dict.fromkeys(name for row in rows for name in row.cells)
    return LogTable(source, kind, tuple(names), tuple(rows))


def _json_fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deep" if isinstance(error, RecursionError) else "a number too long to read"

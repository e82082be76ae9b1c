"""Parse logs of JSON objects: JSON lines, lists of objects, objects of lists, Hugging Face's trainer_state.json."""

from __future__ import annotations

import json
import re

from negwise.curves.log_files import LogTable
from negwise.curves.record_rows import make_row, rows_of_columns, table_of_rows
from negwise.errors import InputError


def looks_like_json(text: str) -> bool:
    """Whether the text starts with an object or a list of them. A column name such as "[val] auc" is no list."""
    return re.match(r"\s*(\{|\[\s*(\{|\]\s*$))", text) is not None


def parse_json(source: str, text: str) -> LogTable:
    """Parse JSON lines (one object per line), or one document: rows, columns, or a ``log_history``."""
    line, _, rest = text.lstrip().partition("\n")
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        first = None  # an indented document, or a broken one
    is_table = not rest.strip() and _columns(first) is not None
    if isinstance(first, dict) and "log_history" not in first and not is_table:
        return _json_lines(source, text)
    return _document(source, text)


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
        rows.append(make_row(source, f"line {number}", record))
    return table_of_rows(source, "jsonl", rows)


def _document(source: str, text: str) -> LogTable:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        line = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise InputError(f"{source}{line}: not JSON ({_json_fault(error)}). Pass a complete file.") from error
    if isinstance(document, list):
        rows = [make_row(source, f"[{index}]", entry) for index, entry in enumerate(document)]
        return table_of_rows(source, "json", rows)
    history = document.get("log_history") if isinstance(document, dict) else None
    if isinstance(history, list):
        rows = [make_row(source, f"log_history[{index}]", entry) for index, entry in enumerate(history)]
        return LogTable(source, "trainer_state", tuple(dict.fromkeys(n for r in rows for n in r.cells)), tuple(rows))
    columns = _columns(document)
    if columns is None or history is not None:
        raise InputError(
            f'{source}: JSON without a list "log_history". Pass a Hugging Face trainer_state.json, JSON lines (one '
            "object on each line), a list of objects, or an object with a list for each column."
        )
    return table_of_rows(source, "json", rows_of_columns(source, columns))


def _columns(document: object) -> dict[str, list[object]] | None:
    """The columns of a table as one object: name -> list, or, as pandas writes it, name -> row label -> value."""
    if not isinstance(document, dict) or not document:
        return None
    values = list(document.values())
    if all(isinstance(column, list) for column in values):
        return document
    if all(isinstance(column, dict) and column.keys() == values[0].keys() for column in values):
        return {name: list(column.values()) for name, column in document.items()}
    return None


def _json_fault(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, column {error.colno}"
    return "nested too deep" if isinstance(error, RecursionError) else "a number too long to read"

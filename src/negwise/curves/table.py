"""A log as a table of named cells, and delimited text (CSV, TSV) read into one.

Cells stay as the file has them (text, or JSON values). Only those that are used become numbers, so a broken
value in a column that nobody needs breaks nothing.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from negwise.errors import InputError

DELIMITERS = ",\t;"


@dataclass(frozen=True)
class Row:
    where: str
    """The place in the file, for messages: 'line 7', 'log_history[12]'."""
    cells: dict[str, object]


@dataclass(frozen=True)
class Table:
    source: str
    kind: str
    names: tuple[str, ...]
    rows: tuple[Row, ...]
    trained_k: tuple[float, float] | None = None
    """The smallest and the largest K that it was trained with, where the log says."""

    def filled(self) -> tuple[str, ...]:
        """The columns that hold a value on some row, in the order of the file."""
        used = {name for row in self.rows for name, cell in row.cells.items() if not blank(cell)}
        return tuple(name for name in self.names if name in used)


def blank(cell: object) -> bool:
    """Nothing logged here: no such key, JSON null, or an empty cell."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def shown(value: object, width: int = 60) -> str:
    """``value`` for a message, on one line of at most ``width`` characters."""
    if isinstance(value, list | dict):  # never its repr: JSON may nest deeper than repr can go
        return "a JSON list" if isinstance(value, list) else "a JSON object"
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - 3]}..."


def listed(names: Sequence[str], most: int = 20) -> str:
    """``names`` for a message."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(shown(name, width=200) for name in names[:most]) + more


def delimited(source: str, text: str) -> Table:
    """Read CSV or TSV: one line of column names, then one line per logged row."""
    delimiter = _delimiter(re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0])
    records = _records(source, text, delimiter)
    line, header = next(records, (1, []))
    names = tuple(name.strip() for name in header)
    _check_names(f"{source}, line {line}", names)
    rows = []
    for line, cells in records:
        if len(cells) != len(names):
            raise InputError(
                f"{source}, line {line}: {len(cells)} cells under {len(names)} column names. "
                "Complete the line or delete it."
            )
        rows.append(Row(f"line {line}", dict(zip(names, cells, strict=True))))
    return Table(source, _kind(names, delimiter), names, tuple(rows))


def _delimiter(header: str) -> str:
    """The delimiter that cuts the header into the most cells; a comma where none does."""

    def cells(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter)))
        except csv.Error:  # a name beyond csv's limit: the reading itself will say so
            return 0

    return max(DELIMITERS, key=cells)


def _records(source: str, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every line that is not empty."""
    # strict: without it an unclosed quote swallows the rest of the file in silence
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(f"{source}, line {line}: broken line ({error}). Repair or delete it.") from error
        if any(cell.strip() for cell in cells):
            yield line, cells


def _check_names(at: str, names: tuple[str, ...]) -> None:
    if not any(re.search(r"[A-Za-z]", name) for name in names):
        raise InputError(f"{at}: no column names. Put them first, for example: step,train_auc,val_auc")
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        raise InputError(f"{at}: more than one column is called {listed(twice)}. Rename them.")


def _kind(names: tuple[str, ...], delimiter: str) -> str:
    # W&B writes "Step","<run> - <metric>","<run> - <metric>__MIN","<run> - <metric>__MAX",... for a chart
    ranges = any(name.endswith(("__MIN", "__MAX")) for name in names)
    if len(names) > 1 and all(" - " in name for name in names[1:]) and (ranges or names[0] == "Step"):
        return "wandb"
    if delimiter == "\t":
        return "tsv"
    return "lightning" if {"epoch", "step"} <= set(names) else "csv"

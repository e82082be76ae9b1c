"""Parse delimited logs: CSV and TSV."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator

from negwise.curves.log_files import LogRow, LogTable, quote_all
from negwise.curves.record_rows import is_wandb_history
from negwise.errors import InputError

DELIMITERS = ",\t;"


def parse_delimited(source: str, text: str) -> LogTable:
    """Parse CSV or TSV: one line of column names, then one line per row."""
    delimiter = _guess_delimiter(re.split(r"[\r\n]", text.lstrip(), maxsplit=1)[0])
    records = _numbered_lines(source, text, delimiter)
    line, header = next(records, (1, []))
    names = tuple(name.strip() for name in header)
    _check_header(f"{source}, line {line}", names)
    rows = []
    for line, cells in records:
        if len(cells) != len(names):
            raise InputError(
                f"{source}, line {line}: {len(cells)} cells under {len(names)} column names. "
                "Complete the line or delete it."
            )
        rows.append(LogRow(f"line {line}", dict(zip(names, cells, strict=True))))
    return LogTable(source, _detect_kind(names, delimiter), names, tuple(rows))


def _guess_delimiter(header: str) -> str:
    """The delimiter that splits the header into the most cells; a comma if none splits it."""

    def cells(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter)))
        except csv.Error:  # a name beyond the limit of csv; parsing the lines will report it
            return 0

    return max(DELIMITERS, key=cells)


def _numbered_lines(source: str, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each line that is not empty."""
    # strict: otherwise an unclosed quote silently swallows the rest of the file.
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


def _check_header(at: str, names: tuple[str, ...]) -> None:
    if not any(re.search(r"[A-Za-z]", name) for name in names):
        raise InputError(f"{at}: no column names. Put them first, for example: step,train_auc,val_auc")
    twice = [name for name, times in Counter(names).items() if name and times > 1]
    if twice:
        raise InputError(f"{at}: more than one column is called {quote_all(twice)}. Rename them.")


def _detect_kind(names: tuple[str, ...], delimiter: str) -> str:
    # W&B exports a chart as "Step","<run> - <metric>","<run> - <metric>__MIN","<run> - <metric>__MAX",...
    ranges = any(name.endswith(("__MIN", "__MAX")) for name in names)
    if len(names) > 1 and all(" - " in name for name in names[1:]) and (ranges or names[0] == "Step"):
        return "wandb"
    if is_wandb_history(names):
        return "wandb_history"
    if delimiter == "\t":
        return "tsv"
    return "lightning" if {"epoch", "step"} <= set(names) else "csv"

"""Tables from records: one dictionary a row, or one list a column. Records of negwise's own run log are evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from negwise.curves.log_files import MAX_EXACT_COUNT, LogRow, LogTable, is_blank, quote_all
from negwise.errors import InputError, quote

RUN_RECORD_KINDS = ("step", "eval", "event")
WANDB_OWN = {"_runtime", "_timestamp"}
"""What W&B puts beside ``_step`` in each row of a run's history."""


def make_row(source: str, where: str, record: object) -> LogRow:
    """``record`` as a row; it must be a dictionary."""
    if not isinstance(record, Mapping):
        raise InputError(f"{source}, {where}: expected a JSON object, not {quote(record)}.")
    return LogRow(where, {str(name): cell for name, cell in record.items()})


def table_of_rows(source: str, kind: str, rows: Sequence[LogRow]) -> LogTable:
    """The table of ``rows``. Its kind is ``run`` or ``wandb_history`` where the rows show that, else ``kind``."""
    if any(row.cells.get("kind") in RUN_RECORD_KINDS for row in rows):
        return _table(source, "run", _evaluations(source, rows), _k_of_steps(rows))
    table = _table(source, kind, rows, None)
    return _table(source, "wandb_history", rows, None) if is_wandb_history(table.names) else table


def is_wandb_history(names: Sequence[str]) -> bool:
    """Whether these are the columns of a run's history in W&B."""
    return "_step" in names and not WANDB_OWN.isdisjoint(names)


def rows_of_columns(source: str, columns: Mapping[str, Sequence[object]]) -> list[LogRow]:
    """Row i has the i-th value of each column. Columns must have one length."""
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        each = quote_all([f"{name}: {len(values)}" for name, values in columns.items()])
        raise InputError(f"{source}: columns of different lengths ({each}). Expected one length, None for no value.")
    size = min(lengths, default=0)
    return [LogRow(f"row {index}", {name: columns[name][index] for name in columns}) for index in range(size)]


def _table(source: str, kind: str, rows: Sequence[LogRow], k: tuple[float, float] | None) -> LogTable:
    names = dict.fromkeys(name for row in rows for name in row.cells)
    return LogTable(source, kind, tuple(names), tuple(rows), k)


def _k_of_steps(rows: Sequence[LogRow]) -> tuple[float, float] | None:
    """The smallest and the largest K of the steps in a run.jsonl."""
    ks = [row.cells.get("k") for row in rows if row.cells.get("kind") == "step"]
    numbers = [float(k) for k in ks if isinstance(k, int | float) and 0 <= k <= MAX_EXACT_COUNT]
    return (min(numbers), max(numbers)) if numbers else None


def _evaluations(source: str, rows: Sequence[LogRow]) -> list[LogRow]:
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

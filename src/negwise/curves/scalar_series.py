"""Tables from series of scalars, as trackers keep them: for each name (step, value) in the order of logging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from negwise.curves.column_roles import quantity_of, words_of_column
from negwise.curves.log_files import LogRow, LogTable
from negwise.errors import InputError, quote

Series = Sequence[tuple[int, float]]


def table_of_series(source: str, kind: str, series: Mapping[str, Series]) -> LogTable:
    """One row a step. A step that was logged twice has its later value, and a note says so.

    A tracker has step 0 where none was given. Where all values of the AUC are at step 0, only their order is known:
    the table then has no steps.
    """
    named = {name: points for name, points in series.items() if quantity_of(words_of_column(name)) != "step"}
    aucs = {name: points for name, points in named.items() if quantity_of(words_of_column(name)) == "auc"}
    unstepped = [name for name, points in aucs.items() if len(points) > 1 and not any(step for step, _ in points)]
    stepped = [name for name, points in aucs.items() if any(step for step, _ in points)]
    if unstepped and stepped:
        name = unstepped[0]
        raise InputError(
            f"{source}: {quote(name)} has {len(aucs[name])} values, all at step 0, and {quote(stepped[0])} has steps. "
            "Log both with their step."
        )
    if unstepped:
        return _table(source, kind, named, _in_order(named))
    latest = {name: dict(points) for name, points in named.items()}
    steps = sorted({step for points in latest.values() for step in points})
    rows = [
        LogRow(f"step {step}", {"step": step, **{name: at[step] for name, at in latest.items() if step in at}})
        for step in steps
    ]
    notes = tuple(note for name in aucs for note in _note_on_repeats(name, aucs[name]))
    return _table(source, kind, {"step": (), **named}, rows, notes)


def _in_order(series: Mapping[str, Series]) -> list[LogRow]:
    longest = max(map(len, series.values()))
    return [
        LogRow(f"value {index}", {name: points[index][1] for name, points in series.items() if index < len(points)})
        for index in range(longest)
    ]


def _note_on_repeats(name: str, points: Series) -> list[str]:
    first: dict[int, float] = {}
    again = [step for step, value in points if first.setdefault(step, value) != value]
    if not again:
        return []
    steps = f"step {again[0]}" if len(set(again)) == 1 else f"{len(set(again))} steps from {min(again)} to {max(again)}"
    return [f"{quote(name)} was logged more than once at {steps}: the later values are used."]


def _table(
    source: str, kind: str, names: Mapping[str, Series], rows: Sequence[LogRow], notes: tuple[str, ...] = ()
) -> LogTable:
    return LogTable(source, kind, tuple(names), tuple(rows), notes=notes)

"""Turn the cells of a log into AUC curves. Text becomes numbers only here, and each number is checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.curves.cells import as_count, finite_float
from negwise.curves.column_roles import SPLITS, ColumnRoles
from negwise.curves.log_files import MAX_EXACT_COUNT, LogRow, LogTable, is_blank
from negwise.errors import InputError, quote

if TYPE_CHECKING:
    from negwise.theory.estimate import Estimate

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Curves:
    """AUC over training, as logged. Arrays of one split have the same length, one entry per evaluation.

    An array is None if the file does not have it: a curve, its steps (then only the order is known), the standard
    errors of the AUC, the counts of queries and of (positive, negative) pairs of each AUC.
    """

    source: str
    kind: str
    """csv, tsv, wandb, wandb_history, wandb_offline, lightning, jsonl, json, run, trainer_state, tensorboard, mlflow or
    records."""
    columns: dict[str, str]
    """Role (train_auc, val_auc, step, ...) -> column of the file."""
    unassigned: tuple[str, ...]
    """AUC columns that were not used: their names say neither training nor validation."""
    train_steps: Floats | None
    train_auc: Floats | None
    train_se: Floats | None
    train_queries: Ints | None
    train_pairs: Ints | None
    val_steps: Floats | None
    val_auc: Floats | None
    val_se: Floats | None
    val_queries: Ints | None
    val_pairs: Ints | None
    trained_k: tuple[float, float] | None = None
    """The smallest and the largest K of the run, if the log has them."""
    notes: tuple[str, ...] = ()
    """What was decided in reading: versions that were joined, steps that were logged twice, counts that do not fit."""

    def caveats(self) -> tuple[str, ...]:
        """What to know of an estimate from these curves: the K of the run, as the theory assumes K = 1, and `notes`."""
        if self.trained_k is None or self.trained_k == (1, 1):
            return self.notes
        low, high = self.trained_k
        ks = f"K = {low:g}" if low == high else f"K from {low:g} to {high:g}"
        return (
            f"This run was trained with {ks}, but the estimate assumes the curves of a run with K = 1. K* from a run "
            f"with {ks} is not that of a pilot with K = 1: train a short one and pass its log.",
            *self.notes,
        )

    def estimate(self, **options: Any) -> Estimate:
        """`negwise.optimal_k` of these curves, with `caveats` before its reasons. ``options`` go to it, as ``lam``."""
        from negwise.theory.optimal_k import optimal_k

        if self.train_auc is None and not {"train_auc", "train_scores"} & options.keys():
            raise InputError(
                f"{self.source}: found no training AUC beside {quote(self.columns.get('val_auc'))}. Log the AUC of a "
                "part of the training rows in evaluation mode too, as train_auc (in a Hugging Face trainer: "
                "eval_dataset={'train': part, 'val': held_out}), or pass estimate(train_auc=0.75)."
            )
        found = optimal_k(**{**self.arguments(), **options})
        return replace(found, reasons=(*self.caveats(), *found.reasons))

    def arguments(self) -> dict[str, Any]:
        """Both curves and `precision` as keyword arguments of `negwise.optimal_k`."""
        curves = {name: getattr(self, name) for name in ("train_auc", "train_steps", "val_auc")}
        return {**curves, "steps": self.val_steps, **self.precision()}

    def precision(self) -> dict[str, Any]:
        """Counts and standard errors as keyword arguments of `negwise.optimal_k`."""
        names = ("train_queries", "train_pairs", "train_se", "val_se")
        counts = {"n_queries": self.val_queries, "n_pairs": self.val_pairs}
        return {**{name: getattr(self, name) for name in names}, **counts}


class AucPoint(NamedTuple):
    """One evaluation; a field is None if the file has no such column."""

    step: float | None
    auc: float
    se: float | None
    queries: float | None
    pairs: float | None


CurveArrays = tuple[Floats | None, Floats | None, Floats | None, Ints | None, Ints | None]


def extract_curves(table: LogTable, roles: ColumnRoles, trained_k: tuple[float, float] | None) -> Curves:
    """The curves in the columns of ``table`` that have ``roles``."""
    train, val = (_curve_arrays(table, roles.columns, split) for split in SPLITS)
    notes = (*table.notes, *roles.notes)
    return Curves(table.source, table.kind, roles.columns, roles.unassigned, *train, *val, trained_k, notes)


def _curve_arrays(table: LogTable, columns: Mapping[str, str], split: str) -> CurveArrays:
    """Steps, AUC, standard errors, queries and pairs of one split."""
    if f"{split}_auc" not in columns:
        return None, None, None, None, None
    step, auc, se, queries, pairs = zip(*_read_points(table, columns, split), strict=True)
    return _floats(step), _floats(auc), _floats(se), _ints(queries), _ints(pairs)


def _floats(values: tuple[float | None, ...]) -> Floats | None:
    return None if values[0] is None else np.array(values, np.float64)


def _ints(values: tuple[float | None, ...]) -> Ints | None:
    return None if values[0] is None else np.array(values, np.int64)


def _read_points(table: LogTable, columns: Mapping[str, str], split: str) -> list[AucPoint]:
    """The evaluations of ``split`` in the order of the file. Steps must increase."""
    auc = columns[f"{split}_auc"]
    points: list[AucPoint] = []
    last, where = -math.inf, ""
    for row in table.rows:
        if is_blank(row.cells.get(auc)):
            continue
        at = f"{table.source}, {row.where}"
        point = _read_point(at, row, columns, split)
        if point.step is not None:
            if point.step == last and point == points[-1]:
                continue  # one evaluation, logged twice
            if point.step <= last:
                fault = "another value for" if point.step == last else f"after step {last:.15g}, back to"
                raise InputError(
                    f"{at}: column {quote(auc)}: {fault} step {point.step:.15g} (see {where}). "
                    "Delete the lines that a restart repeats, keep one run per file, or type --step-column NAME."
                )
            last, where = point.step, row.where
        points.append(point)
    return points


def _read_point(at: str, row: LogRow, columns: Mapping[str, str], split: str) -> AucPoint:
    def value(role: str, check: Callable[[float], str | None]) -> float | None:
        return _read_number(at, row, columns[role], check) if role in columns else None

    return AucPoint(
        value("step", _bad_step),
        _read_number(at, row, columns[f"{split}_auc"], _bad_auc),
        value(f"{split}_se", _bad_se),
        value(f"{split}_queries", _bad_count),
        value(f"{split}_pairs", _bad_count),
    )


def _read_number(at: str, row: LogRow, column: str, check: Callable[[float], str | None]) -> float:
    cell = row.cells.get(column)
    if is_blank(cell):
        raise InputError(
            f"{at}: no value in column {quote(column)}, though other lines have one. "
            "Fill it in, remove the column, or name another."
        )
    value = finite_float(cell)
    wrong = "is not a finite number; write one or leave the cell empty" if value is None else check(value)
    if value is None or wrong is not None:
        raise InputError(f"{at}: {quote(cell)} in column {quote(column)} {wrong}.")
    return value


def _bad_auc(value: float) -> str | None:
    if 1 < value <= 100:
        return "is above 1, and an AUC lies in [0, 1]; if the column is in percent, divide it by 100"
    return None if 0 <= value <= 1 else "is not an AUC, which lies in [0, 1]"


def _bad_step(value: float) -> str | None:
    return None if value >= 0 else "is a negative step; steps count from 0"


def _bad_se(value: float) -> str | None:
    return None if value >= 0 else "is a negative standard error"


def _bad_count(value: float) -> str | None:
    return (
        None if as_count(value) is not None else f"is not a count, which is a whole number from 1 to {MAX_EXACT_COUNT}"
    )

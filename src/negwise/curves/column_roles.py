"""Find the role of each column by its name: AUC curves, their steps, standard errors and counts, and K.

A name is split into words ("val/rocAUC" -> val, roc, auc), and the words decide. Nothing is guessed: a test
column is not validation, a precision-recall AUC is not a ROC AUC, a running best is not a curve, and two
candidates for one role are an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from negwise.curves.bare_counts import bare_counts, drop_useless_pairs
from negwise.curves.cells import as_k
from negwise.curves.log_files import LogTable, is_blank, quote_all
from negwise.errors import InputError, quote

SPLITS = ("train", "val")
QUANTITIES = ("auc", "se", "queries", "pairs")
ROLES = ("step", *(f"{split}_{quantity}" for split in SPLITS for quantity in QUANTITIES), "k")
FLAGS = {"train_auc": "--train-column", "val_auc": "--val-column", "step": "--step-column"}

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_TRAIN = {"train", "training"}
_VAL = {"val", "valid", "validation", "dev"}
_EVAL = {"eval", "evaluation"}
_TEST = {"test", "testing"}
_AUC = {"auc", "auroc", "rocauc", "aucroc"}
_SE = ({"se"}, {"sem"}, {"stderr"}, {"std", "err"}, {"std", "error"}, {"standard", "error"})
_NOT_A_ROC_CURVE = (
    {"pr", "prc", "precision", "recall", "partial", "loss", "time", "runtime", "count", "threshold"}
    | {"min", "max", "best", "top", "delta", "diff", "gap"}
    | {"std", "var", "sd", "se", "sem", "stderr", "err", "error", "ci", "low", "lower", "high", "upper"}
)
_COUNTS = {"queries", "pairs"}
_FILLERS = {"n", "num", "number", "of", "count", "roc"}
_STEP = {"step", "steps", "iteration", "iterations", "iter", "update", "updates"}
_EPOCH = {"epoch", "epochs"}
_STEP_FILLERS = {"global", "train", "trainer", "training", "n", "num", "number"}
_COUNT_WORDS = {"n", "num", "number"}
WANDB_STEP = "_step"  # counts the calls of wandb.log, and yields to a column with the steps of training

Words = tuple[str, ...]
Matches = dict[tuple[str | None, str], list[str]]
"""(split, quantity) -> the columns with that split and quantity in their names."""


@dataclass(frozen=True)
class ColumnRoles:
    """The column of each role."""

    columns: dict[str, str]
    """Role -> column, for the roles that were found."""
    unassigned: tuple[str, ...]
    """AUC columns whose names say neither training nor validation."""
    notes: tuple[str, ...] = ()
    """Columns of counts that were not used, and why."""


def words_of_column(name: str) -> Words:
    """The words of a name in their order, in lower case: "run/valROC-auc" -> run, val, roc, auc."""
    return tuple(word.lower() for word in _WORD.findall(name))


def split_of(words: Words) -> str | None:
    """'train', 'val', 'test', or None if the words name no split, or two.

    Hugging Face prefixes every evaluation with "eval", even that of training data. So "eval" counts only if no
    other split is named.
    """
    named = frozenset(words)
    splits = [split for split, known in (("train", _TRAIN), ("val", _VAL), ("test", _TEST)) if named & known]
    if "test" in splits:
        return "test"
    if not splits and named & _EVAL:
        return "val"
    return splits[0] if len(splits) == 1 else None


def is_only_a_split(words: Words) -> bool:
    """Whether a folder's name is that of a split and nothing else: "train", "validation", "auc_train"."""
    return split_of(words) is not None and frozenset(words) <= _TRAIN | _VAL | _EVAL | _TEST | _AUC | {"roc"}


def quantity_of(words: Words) -> str | None:
    """'auc', 'se', 'queries', 'pairs', 'step', 'epoch', 'k' or None.

    A data set may be called "pairs": "eval_pairs_auc" is an AUC, as it ends so, and "eval_auc_pairs" a count.
    """
    named = frozenset(words)
    if len(named - _STEP_FILLERS) == 1 and named & (_STEP | _EPOCH):
        return "step" if named & _STEP else "epoch"
    if _names_k(named):
        return "k"
    rest = named - _TRAIN - _VAL - _EVAL - _TEST - _AUC - _FILLERS
    if rest in _SE:
        return "se"
    if named & _COUNTS and words[-1] not in _AUC:
        return min(rest) if rest in ({"queries"}, {"pairs"}) else None
    return "auc" if named & _AUC and not named & _NOT_A_ROC_CURVE else None


def _names_k(words: frozenset[str]) -> bool:
    """Whether a name is that of K: "k", "train/k", "k_used", "num_negatives"; not "val_k", "recall@k", "top_k"."""
    rest = words - _TRAIN - {"used"}
    return rest == {"k"} or ("negatives" in rest and len(rest) > 1 and rest <= _COUNT_WORDS | {"negatives", "of"})


def assign_roles(table: LogTable, requested: Mapping[str, str | None]) -> ColumnRoles:
    """Find the column of each role. A column in ``requested`` takes precedence over the search by name."""
    columns = {role: name for role, name in requested.items() if name is not None}
    nonempty = table.nonempty_columns()
    _check_requested(table, columns, nonempty)
    requested_names = set(columns.values())
    free = [name for name in nonempty if name not in requested_names]

    matches = _match_names(table, free, columns)
    for split in SPLITS:
        _assign(table, columns, f"{split}_auc", matches.get((split, "auc"), []))
    unassigned = tuple(matches.get((None, "auc"), []))
    curves = [split for split in SPLITS if f"{split}_auc" in columns]
    if not curves:
        raise _no_curve_error(table, nonempty, unassigned)
    for role in columns:
        if role not in ("step", "k") and role.split("_")[0] not in curves:
            raise InputError(f"{table.source}: {role} was requested, but there is no {role.split('_')[0]}_auc.")
    _check_one_run(table, columns, requested_names)

    matches = _match_names(table, free, columns)
    bare, notes = bare_counts(table, columns, matches)
    for split in curves:
        for quantity in ("se", "queries", "pairs"):
            without_split = _bare_se(matches, curves) if quantity == "se" else bare.get((split, quantity), [])
            candidates = _named_after(columns[f"{split}_auc"], quantity, free) or matches.get((split, quantity), [])
            _assign(table, columns, f"{split}_{quantity}", candidates or without_split)
    notes += drop_useless_pairs(table, columns, curves, requested_names)
    steps = matches.get((None, "step"), []) or matches.get((None, "epoch"), [])
    _assign(table, columns, "step", _step_candidates(table, steps, [columns[f"{split}_auc"] for split in curves]))
    if "k" not in columns and (found := _k_column(table, matches)) is not None:
        columns["k"] = found
    return ColumnRoles({role: columns[role] for role in ROLES if role in columns}, unassigned, tuple(notes))


def _named_after(curve: str, quantity: str, names: list[str]) -> list[str]:
    """The column that is named after the one of the curve: "eval_pairs_auc_queries"."""
    return [name for name in names if name == f"{curve}_{quantity}"]


def _bare_se(matches: Matches, curves: list[str]) -> list[str]:
    """Standard errors whose name has no split: they belong to a single curve, not to one of two."""
    return matches.get((None, "se"), []) if len(curves) == 1 else []


def _step_candidates(table: LogTable, steps: list[str], curves: list[str]) -> list[str]:
    # In a W&B export "<run> - _step" repeats the column of steps.
    steps = [name for name in steps if _wandb_run(table, name) is None] or steps
    others = [name for name in steps if name != WANDB_STEP]
    if WANDB_STEP in steps and others:
        return [name for name in others if all(_covers(table, curve, name) for curve in curves)] or [WANDB_STEP]
    return steps


def _k_column(table: LogTable, matches: Matches) -> str | None:
    """The column of K: it is called so and holds numbers. Of K as asked for and K as used, the first."""
    found = [name for name in matches.get((None, "k"), []) if None not in map(as_k, table.values(name))]
    return min(found, key=lambda name: "used" in words_of_column(name), default=None)


def _covers(table: LogTable, curve: str, name: str) -> bool:
    """Whether column ``name`` has a value wherever ``curve`` has one."""
    return not any(is_blank(row.cells.get(name)) for row in table.rows if not is_blank(row.cells.get(curve)))


def _match_names(table: LogTable, names: list[str], columns: Mapping[str, str]) -> Matches:
    """The split and quantity of each name. In a W&B export, only names in the run of the curves found so far."""
    runs = {_wandb_run(table, columns[role]) for role in ("train_auc", "val_auc") if role in columns}
    matches: Matches = {}
    for name in names:
        run = _wandb_run(table, name)
        if runs and run not in runs | {None}:
            continue
        words = words_of_column(name.removeprefix(run or ""))  # a run called "train-7" names no split
        quantity = quantity_of(words)
        if quantity is not None:
            split = None if quantity in ("step", "epoch", "k") else split_of(words)
            matches.setdefault((split, quantity), []).append(name)
    return matches


def _wandb_run(table: LogTable, name: str) -> str | None:
    """The run in a column name of a W&B export, "<run> - <metric>"."""
    run, separator, _ = name.rpartition(" - ")
    return run if separator and table.kind == "wandb" else None


def _assign(table: LogTable, columns: dict[str, str], role: str, candidates: list[str]) -> None:
    if role in columns or not candidates:
        return
    if len(candidates) > 1:
        raise InputError(
            f"{table.source}: {role} may be any of {quote_all(candidates)}. To choose, {_how_to_name(role)}."
        )
    columns[role] = candidates[0]


def _how_to_name(role: str) -> str:
    python = f"columns={{'{role}': NAME}}"
    return f"type {FLAGS[role]} NAME (in Python: {python})" if role in FLAGS else f"in Python, {python}"


def _check_requested(table: LogTable, requested: Mapping[str, str], nonempty: tuple[str, ...]) -> None:
    for role, name in requested.items():
        if role not in ROLES:
            raise InputError(f"columns: {quote(role)} is not a role; the roles are {quote_all(ROLES)}.")
        if name not in nonempty:
            state = "is empty on every line" if name in table.names else "does not exist"
            raise InputError(
                f"{table.source}: column {quote(name)}, requested as {role}, {state}. "
                f"Columns with values: {quote_all(nonempty) or 'none'}. To name one, {_how_to_name(role)}."
            )
    if "val_auc" in requested and requested.get("train_auc") == requested["val_auc"]:
        raise InputError(
            f"{table.source}: column {quote(requested['val_auc'])} cannot be both curves. Name one for each."
        )


def _check_one_run(table: LogTable, columns: Mapping[str, str], requested_names: set[str]) -> None:
    runs = [_wandb_run(table, columns[role]) for role in ("train_auc", "val_auc") if role in columns]
    if len(set(runs)) > 1 and not {columns["train_auc"], columns["val_auc"]} <= requested_names:
        raise InputError(
            f"{table.source}: training AUC of run {quote(runs[0])}, validation AUC of run {quote(runs[1])}. "
            "Export one run, or type --train-column NAME --val-column NAME to use both."
        )


def _no_curve_error(table: LogTable, nonempty: tuple[str, ...], unassigned: tuple[str, ...]) -> InputError:
    if not nonempty:
        thing = "an evaluation" if table.kind == "run" else "a value"
        return InputError(f"{table.source}: nothing logged yet: no line holds {thing}.")
    if unassigned:
        return InputError(
            f"{table.source}: {quote_all(unassigned)}: training or validation? The name does not say. "
            f"For validation, {_how_to_name('val_auc')}; for training, {_how_to_name('train_auc')}."
        )
    return InputError(
        f"{table.source}: no column is named like a training or validation AUC (train_auc, val/auroc, ...). "
        f"Columns with values: {quote_all(nonempty)}. To name one, {_how_to_name('val_auc')}."
    )

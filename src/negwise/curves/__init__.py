"""AUC curves from the logs that people already have.

    curves = read("lightning_logs/version_0")
    curves.train_auc, curves.val_steps, curves.val_auc
    read(trainer.state.log_history).estimate()

It reads CSV and TSV (also exports of Weights & Biases and Lightning's metrics.csv), JSON (lines, lists, Hugging Face's
trainer_state.json, negwise's own run.jsonl), TensorBoard's event files, runs of MLflow and of W&B on disk, and records
and frames in memory. The content decides the format. Column names decide the roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from negwise.curves.auc_curves import Curves, extract_curves
from negwise.curves.column_roles import assign_roles
from negwise.curves.open_log import open_log
from negwise.curves.trained_k import k_of_table

__all__ = ["Curves", "read"]


def read(log: Any, *, columns: Mapping[str, str | None] | None = None, run: str | None = None) -> Curves:
    """Read the AUC curves in ``log``: a file, a folder with one log, ``"-"`` for standard input, or records.

    A file may be packed with gzip. Records are a list of dictionaries, a dictionary of columns, a pandas or polars
    frame, an Arrow table or a Hugging Face dataset. ``columns`` maps roles to columns where the names do not tell:
    ``step``, ``k``, ``train_auc``, ``train_se``, ``train_queries``, ``train_pairs``, and the same four for ``val``. A
    role that is None is found by name. ``run`` is the id or the name of a run where a folder or an MLflow database has
    several. A fault in the log raises an `InputError` that names the file and the line.
    """
    table = open_log(log, run)
    roles = assign_roles(table, columns or {})
    return extract_curves(table, roles, k_of_table(table, roles))

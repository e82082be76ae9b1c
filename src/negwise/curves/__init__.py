"""AUC curves from the logs that people already have.

    curves = read("lightning_logs/version_0")
    curves.train_auc, curves.val_steps, curves.val_auc

It reads CSV and TSV (also exports of Weights & Biases and Lightning's metrics.csv), JSON lines (also negwise's
own run.jsonl) and Hugging Face's trainer_state.json. The content decides the format. Column names decide the roles.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from negwise.curves.auc_curves import Curves, extract_curves
from negwise.curves.column_roles import assign_roles
from negwise.curves.delimited_logs import parse_delimited
from negwise.curves.json_logs import looks_like_json, parse_json
from negwise.curves.log_files import find_log, read_text

__all__ = ["Curves", "read"]


def read(path: str | os.PathLike[str], *, columns: Mapping[str, str | None] | None = None) -> Curves:
    """Read the AUC curves in ``path``, a log file or a folder with one log file.

    ``columns`` maps roles to columns where the names do not tell: ``step``, ``train_auc``, ``train_se``,
    ``train_queries``, ``train_pairs``, and the same four for ``val``. A role that is None is found by name.
    A fault in the file raises an `InputError` that names the file and the line.
    """
    file = find_log(Path(path))
    text = read_text(file)
    parse = parse_json if looks_like_json(text) else parse_delimited
    table = parse(str(file), text)
    return extract_curves(table, assign_roles(table, columns or {}))

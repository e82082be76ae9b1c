"""Logs that are in memory: lists of dictionaries, dictionaries of columns, pandas and polars frames, Arrow tables.

No package is imported here but the one that the object came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from negwise.curves.log_files import LogTable
from negwise.curves.record_rows import make_row, rows_of_columns, table_of_rows
from negwise.errors import InputError, quote, require

SOURCE = "the records"
EXPECTED = (
    "a path, a list of dictionaries, a dictionary of columns, a pandas or polars frame, an Arrow table or a Hugging "
    "Face dataset"
)


def parse_memory(data: Any) -> LogTable:
    """The table of ``data``. In a frame of pandas NaN is an empty cell, as pandas has no other."""
    columns = _columns_of(data)
    if columns is not None:
        plain = {str(name): [_plain(cell) for cell in values] for name, values in columns.items()}
        if len(plain) < len(columns):
            raise InputError(f"{SOURCE}: two columns with one name in {quote(list(columns))}. Rename them.")
        return table_of_rows(SOURCE, "records", rows_of_columns(SOURCE, plain))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        rows = []
        for index, record in enumerate(data):
            if not isinstance(record, Mapping):
                raise InputError(f"{SOURCE}, [{index}]: expected a dictionary, not {quote(record)}.")
            row = {name: _plain(cell) for name, cell in record.items()}
            rows.append(make_row(SOURCE, f"[{index}]", row))
        return table_of_rows(SOURCE, "records", rows)
    shown = " ".join(quote(data).split())  # the text of a frame or an array has lines
    raise InputError(f"read: got {shown} of type {type(data).__name__}, expected {EXPECTED}.")


def _columns_of(data: Any) -> dict[Any, list[Any]] | None:
    """The columns of ``data`` as lists; None if it is no table."""
    package = type(data).__module__.split(".")[0]
    if package == "pandas" and hasattr(data, "columns"):
        return _of_pandas(data)
    if package == "datasets" and hasattr(data, "column_names") and not isinstance(data, Mapping):
        return {name: list(data[name]) for name in data.column_names}
    if hasattr(data, "to_pydict"):  # an Arrow table or record batch
        return _once_each(data.schema.names, data)
    if hasattr(data, "__arrow_c_stream__") and hasattr(data, "columns"):
        if hasattr(data, "to_dict"):  # polars
            return dict(data.to_dict(as_series=False))
        return dict(require("pyarrow", extra="train").table(data).to_pydict())
    if isinstance(data, Mapping):
        return {name: _listed(name, column) for name, column in data.items()}
    return None


def _once_each(names: list[str], table: Any) -> dict[Any, list[Any]]:
    if len(set(names)) < len(names):
        raise InputError(f"{SOURCE}: two columns with one name in {quote(names)}. Rename them.")
    return dict(table.to_pydict())


def _of_pandas(frame: Any) -> dict[Any, list[Any]]:
    if frame.index.names != [None]:  # an index with a name is a column: people index by step
        frame = frame.reset_index()
    if not frame.columns.is_unique:
        raise InputError(f"{SOURCE}: two columns with one name in {quote(list(frame.columns))}. Rename them.")
    columns = {name: frame[name].tolist() for name in frame.columns}
    return {name: [None if _is_missing(cell) else cell for cell in cells] for name, cells in columns.items()}


def _is_missing(cell: Any) -> bool:
    return type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and math.isnan(cell))


def _listed(name: Any, column: Any) -> list[Any]:
    if isinstance(column, str | bytes | Mapping) or not hasattr(column, "__iter__"):
        raise InputError(f"{SOURCE}: column {quote(name)} is {quote(column)}, expected a list of values.")
    return list(column)


def _plain(cell: Any) -> Any:
    """A NumPy or torch number as Python's own."""
    return cell.item() if hasattr(cell, "item") and getattr(cell, "ndim", None) == 0 else cell

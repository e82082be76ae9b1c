"""Data that is in memory: pandas, polars and Arrow tables, Hugging Face datasets, lists of dictionaries.

It becomes an Arrow file in the cache, named by its content; from there on it is a file like others. So a job can
resume, and its worker processes find the data. No package is imported here but the one that the object came from.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from negwise.datasets.arrow_files import BATCH_ROWS, plain
from negwise.datasets.data_names import FOLDER, file_name
from negwise.datasets.table_cache import cache_folder
from negwise.errors import InputError, quote, require

EXPECTED = (
    "a path, a pandas or polars frame, an Arrow table, a Hugging Face dataset, a list of dictionaries, or a "
    "dictionary of columns"
)


def as_path(data: Any, cache: Path | None = None) -> str | os.PathLike[str]:
    """``data`` if it is a path; else the path of the file in ``cache`` that holds it."""
    if isinstance(data, str | os.PathLike):
        return data
    return store(data, cache_folder() if cache is None else cache)


def store(data: Any, cache: Path) -> Path:
    """Write ``data`` as an Arrow file, unless it is there already. Returns its path."""
    table = to_table(data)
    folder = cache / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".frame-")
        os.close(handle)
        return _write(table, Path(temporary))
    except OSError as error:
        raise InputError(
            f"{cache}: cannot write the cache ({error.strerror or error}). Set NEGWISE_CACHE to another folder."
        ) from error


def _write(table: Any, temporary: Path) -> Path:
    """``table`` as a file beside ``temporary``, which gets its name when it is whole: the hash of its content."""
    arrow = require("pyarrow", extra="train")
    try:
        with arrow.ipc.new_file(str(temporary), table.schema) as writer:
            writer.write_table(table, max_chunksize=BATCH_ROWS)
        with temporary.open("rb") as stream:
            content = hashlib.file_digest(stream, "sha256").hexdigest()
        return temporary.replace(temporary.with_name(file_name(content)))
    finally:
        temporary.unlink(missing_ok=True)


def to_table(data: Any) -> Any:
    """An Arrow table of ``data``."""
    arrow = require("pyarrow", extra="train")
    try:
        table = _convert(arrow, data)
        names = table.column_names
        if len(set(names)) < len(names):
            twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
            raise InputError(
                f"data: {len(names)} columns, of which {quote(', '.join(twice), 120)} more than once; expected each "
                "name once. Rename or drop columns."
            )
        return _with_one_dictionary(arrow, table).replace_schema_metadata(None)
    except (arrow.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InputError(
            f"data: a {type(data).__name__} with a column that is no column of one type ({error}). "
            "Expected text, whole numbers, times, or lists of texts in each."
        ) from error


def _convert(arrow: Any, data: Any) -> Any:
    package, name = type(data).__module__.split(".")[0], type(data).__name__
    if isinstance(data, arrow.Table):
        return data
    if package == "datasets":
        return _of_dataset(arrow, data)
    if isinstance(data, arrow.Array | arrow.ChunkedArray) or (package in ("pandas", "polars") and name == "Series"):
        raise InputError(
            f"data: got a single column ({name}), expected {EXPECTED}, with a column for users and one for items, or "
            "for left and right texts. Pass the frame that it is of."
        )
    if package == "pandas" and hasattr(data, "columns"):
        return _of_pandas(arrow, data)
    if package == "polars" and name == "LazyFrame":
        raise InputError("data: got a polars LazyFrame, which has no rows yet. Pass frame.collect().")
    if hasattr(data, "__arrow_c_stream__"):
        return arrow.table(data)
    if isinstance(data, Mapping):
        return _of_columns(arrow, data)
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        names = list(dict.fromkeys(name for row in data for name in row))
        columns = [_named(arrow, name, [row.get(name) for row in data]) for name in names]
        return arrow.table(columns, names=[str(name) for name in names])
    raise InputError(f"data: got {quote(data)} of type {name}, expected {EXPECTED}.")


def _of_pandas(arrow: Any, frame: Any) -> Any:
    # Not by __arrow_c_stream__, which takes the index for a column. Names may be numbers there, or be there twice.
    names = [str(name) for name in frame.columns]
    columns = [frame.iloc[:, at] for at in range(len(names))]
    if len(set(names)) < len(names):
        return arrow.table([arrow.array([], "int8")] * len(names), names=names)
    made = [_named(arrow, name, one, _of_series) for name, one in zip(names, columns, strict=True)]
    return arrow.table(made, names=names)


def _of_series(arrow: Any, series: Any) -> Any:
    try:
        return arrow.array(series, from_pandas=True)
    except OverflowError:
        return _column(arrow, series.tolist())


def _of_columns(arrow: Any, data: Mapping[Any, Any]) -> Any:
    """A table of a dictionary of columns."""
    for name, values in data.items():
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
            raise InputError(
                f"data: got a dictionary in which {name!r} is {quote(values)}, one value; expected a column of values. "
                "Pass a list of such dictionaries, or a list of values for each name."
            )
    columns = {name: _named(arrow, name, values) for name, values in data.items()}
    lengths = {str(name): len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(f"data: columns of different lengths, {quote(lengths, 120)}; expected a value for each row.")
    return arrow.table(list(columns.values()), names=[str(name) for name in columns])


def _named(arrow: Any, name: Any, values: Any, make: Callable[[Any, Any], Any] | None = None) -> Any:
    """The column ``name``, as an Arrow array."""
    try:
        return (make or _column)(arrow, values)
    except (arrow.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InputError(
            f"data: the column {quote(str(name))} has no one type ({error}). Expected text, whole numbers, times, or "
            "lists of texts in all rows. If it holds ids, make all of them texts."
        ) from error


def _column(arrow: Any, values: Iterable[Any]) -> Any:
    """An Arrow array. Whole numbers of which one is too large for 64 bits are texts: ids are texts in any case."""
    if isinstance(values, arrow.Array | arrow.ChunkedArray):
        return values
    values = values if hasattr(values, "__array__") or hasattr(values, "__arrow_c_array__") else list(values)
    try:
        return arrow.array(values)
    except OverflowError:
        cells = list(values)
        whole = all(one is None or (isinstance(one, int) and not isinstance(one, bool)) for one in cells)
        if not whole:
            raise
        return arrow.array([None if one is None else str(one) for one in cells], arrow.string())


def _with_one_dictionary(arrow: Any, table: Any) -> Any:
    """``table`` with one dictionary for all rows of a column, as a file has it, and its texts as strings."""
    for at, field in enumerate(table.schema):
        if arrow.types.is_dictionary(field.type):
            chunks = [plain(arrow, chunk) for chunk in table.column(at).chunks]
            column = arrow.chunked_array(chunks) if chunks else arrow.chunked_array([], arrow.string())
            table = table.set_column(at, field.name, column)
    return table.unify_dictionaries()


def _of_dataset(arrow: Any, data: Any) -> Any:
    """A Hugging Face Dataset; of a DatasetDict its training split."""
    if isinstance(data, Mapping):
        if "train" not in data:
            raise InputError(
                f"data: the splits {', '.join(data)}, none of them train. Pass one, as data['{next(iter(data))}']."
            )
        data = data["train"]
    # By its format and not by its file, which may have rows that were filtered or shuffled away.
    return arrow.concat_tables(data.with_format("arrow").iter(batch_size=BATCH_ROWS))

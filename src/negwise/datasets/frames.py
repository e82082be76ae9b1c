"""Data that is in memory: pandas, polars and Arrow tables, Hugging Face datasets, lists of dictionaries.

It becomes an Arrow file in the cache, named by its content; from there on it is a file like others. So a job can
resume, and its worker processes find the data. No package is imported here but the one that the object came from.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from negwise.datasets.arrow_files import BATCH_ROWS
from negwise.datasets.table_cache import cache_folder
from negwise.errors import InputError, quote, require

FOLDER = "frames"
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
            content = hashlib.file_digest(stream, "sha256").hexdigest()[:16]
        return temporary.replace(temporary.with_name(f"frame-{content}.arrow"))
    finally:
        temporary.unlink(missing_ok=True)


def to_table(data: Any) -> Any:
    """An Arrow table of ``data``."""
    arrow = require("pyarrow", extra="train")
    try:
        table = _convert(arrow, data)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError, UnicodeEncodeError) as error:
        raise InputError(
            f"data: a {type(data).__name__} with a column that is no column of one type ({error}). "
            "Expected text, whole numbers, times, or lists of texts in each."
        ) from error
    if table is None:
        raise InputError(f"data: got {quote(data)} of type {type(data).__name__}, expected {EXPECTED}.")
    names = table.column_names
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise InputError(f"data: columns {quote(', '.join(map(str, names)), 120)}, expected each name once.")
    return table.replace_schema_metadata(None)


def _convert(arrow: Any, data: Any) -> Any:
    package = type(data).__module__.split(".")[0]
    if isinstance(data, arrow.Table):
        return data
    if package == "pandas":
        # Not by __arrow_c_stream__, which takes the index for a column. Names may be numbers there.
        return arrow.Table.from_pandas(data.rename(columns=str), preserve_index=False)
    if package == "datasets":
        return _of_dataset(arrow, data)
    if hasattr(data, "__arrow_c_stream__"):
        return arrow.table(data)
    if isinstance(data, Mapping):
        return arrow.table({str(name): _column(arrow, column) for name, column in data.items()})
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        names = list(dict.fromkeys(name for row in data for name in row))
        return arrow.table({str(name): arrow.array([row.get(name) for row in data]) for name in names})
    return None


def _column(arrow: Any, values: Iterable[Any]) -> Any:
    return values if isinstance(values, arrow.Array | arrow.ChunkedArray) else arrow.array(values)


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

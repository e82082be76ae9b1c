"""Reads tables that are columns already: Parquet, Feather, Arrow files and streams (as Hugging Face saves them)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.delimited import IDS
from negwise.datasets.row_blocks import RowBlock
from negwise.errors import InputError, require

BATCH_ROWS = 2**16
READ_AHEAD = 2**16
"""Bytes of a column to read ahead. Without a limit pyarrow holds a whole row group, which may be the whole file."""
MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow", b"\xff\xff\xff\xff": "arrow-stream"}
"""What a file begins with -> its form."""
_NAMES = {"parquet": "Parquet", "arrow": "an Arrow file", "arrow-stream": "an Arrow stream"}


def form_of(first: bytes) -> str | None:
    """The form of a file of columns by its first bytes; None for other files."""
    return next((form for magic, form in MAGIC.items() if first.startswith(magic)), None)


def column_names(file: Path, form: str) -> tuple[str, ...]:
    arrow = require("pyarrow", extra="train")
    try:
        with _open(file, form, []) as (schema, _, _):
            return tuple(schema.names)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: cannot be read as {_NAMES[form]} ({error}). Is the file complete?") from error


def table_rows(file: Path, form: str, chosen: Mapping[str, str]) -> Iterator[RowBlock]:
    """Cells by role, at most `BATCH_ROWS` at a time."""
    arrow, done = require("pyarrow", extra="train"), 0
    try:
        with _open(file, form, list(chosen.values()), [name for role, name in chosen.items() if role in IDS]) as (
            _, total, batches,
        ):  # fmt: skip
            for whole in batches:
                for at in range(0, whole.num_rows, BATCH_ROWS):
                    batch = whole.slice(at, BATCH_ROWS)
                    columns = {role: _plain(arrow, batch.column(name)) for role, name in chosen.items()}
                    numbers = np.arange(done + 1, done + batch.num_rows + 1)
                    done += batch.num_rows
                    yield RowBlock(file, columns, numbers, share=done / total if total else 0.5, unit="row")
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{file}, after row {done}: reading failed ({error}). Is the file complete?") from error


@contextmanager
def _open(
    file: Path, form: str, columns: list[str], texts: list[str] | None = None
) -> Iterator[tuple[Any, int | None, Iterator[Any]]]:
    """The schema, the number of rows if it is known, and the batches of ``columns``."""
    arrow = require("pyarrow", extra="train")
    with file.open("rb") as raw:  # not by its name, which need not be UTF-8
        if form == "parquet":
            open_table = require("pyarrow.parquet", extra="train").ParquetFile
            more = {"pre_buffer": False, "buffer_size": READ_AHEAD}
            table = open_table(raw, **more)
            kinds = {field.name: field.type for field in table.schema_arrow}
            strings = [name for name in texts or () if arrow.types.is_string(kinds[name])]
            if strings:
                table = open_table(raw, read_dictionary=strings, **more)
            batches = table.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False)
            yield table.schema_arrow, table.metadata.num_rows, batches
        elif form == "arrow":
            reader = arrow.ipc.open_file(raw, options=_only(arrow, raw, columns))
            yield reader.schema, None, (reader.get_batch(at) for at in range(reader.num_record_batches))
        else:
            yield (reader := arrow.ipc.open_stream(raw)).schema, None, iter(reader)


def _only(arrow: Any, raw: Any, columns: list[str]) -> Any:
    """Read options for ``columns`` alone."""
    names = arrow.ipc.open_file(raw).schema.names
    raw.seek(0)
    return arrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns], use_threads=False)


def _plain(arrow: Any, column: Any) -> Any:
    """Lists of fixed size and views as plain lists and strings; bytes stay bytes."""
    types, kind = arrow.types, column.type
    if types.is_string_view(kind):
        return column.cast(arrow.string())
    if types.is_dictionary(kind) and not types.is_string(kind.value_type):
        return column.cast(kind.value_type)
    return column

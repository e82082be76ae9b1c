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

BATCH_ROWS = 2**17
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
        with _open(file, form, []) as (schema, _):
            return tuple(schema.names)
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{file}: cannot be read as {_NAMES[form]} ({error}). Is the file complete?") from error


def table_rows(file: Path, form: str, chosen: Mapping[str, str]) -> Iterator[RowBlock]:
    """Cells by role, at most `BATCH_ROWS` at a time."""
    arrow, done = require("pyarrow", extra="train"), 0
    ids = [name for role, name in chosen.items() if role in IDS]
    try:
        with _open(file, form, list(chosen.values()), ids) as (_, batches):
            for whole, share in batches:
                for at in range(0, whole.num_rows, BATCH_ROWS):
                    batch = whole.slice(at, BATCH_ROWS)
                    columns = {role: _plain(arrow, batch.column(name)) for role, name in chosen.items()}
                    numbers = np.arange(done + 1, done + batch.num_rows + 1)
                    done += batch.num_rows
                    yield RowBlock(file, columns, numbers, share=share, unit="row")
    except (arrow.ArrowException, OSError) as error:
        raise InputError(f"{file}, after row {done}: reading failed ({error}). Is the file complete?") from error


Batches = Iterator[tuple[Any, float]]
"""Record batches, and the share of the file that is read after each."""


@contextmanager
def _open(file: Path, form: str, columns: list[str], ids: list[str] | None = None) -> Iterator[tuple[Any, Batches]]:
    """The schema and the batches of ``columns``; texts of ``ids`` come as dictionary arrays where that saves work."""
    arrow = require("pyarrow", extra="train")
    with file.open("rb") as raw:  # not by its name, which need not be UTF-8
        if form == "parquet":
            open_table = require("pyarrow.parquet", extra="train").ParquetFile
            more = {"pre_buffer": False, "buffer_size": READ_AHEAD}
            table = open_table(raw, **more)
            kinds = {field.name: field.type for field in table.schema_arrow}
            texts = [name for name in ids or () if arrow.types.is_string(kinds[name])]
            if texts:
                table = open_table(raw, read_dictionary=texts, **more)
            batches = table.iter_batches(batch_size=BATCH_ROWS, columns=columns, use_threads=False)
            yield table.schema_arrow, _with_shares(batches, table.metadata.num_rows)
        elif form == "arrow":
            reader = arrow.ipc.open_file(raw, options=_only(arrow, raw, columns))
            n = reader.num_record_batches
            yield reader.schema, ((reader.get_batch(at), (at + 1) / n) for at in range(n))
        else:
            stream, size = arrow.ipc.open_stream(raw), file.stat().st_size
            yield stream.schema, ((batch, raw.tell() / size) for batch in stream)


def _with_shares(batches: Iterator[Any], rows: int) -> Batches:
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch, done / rows


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

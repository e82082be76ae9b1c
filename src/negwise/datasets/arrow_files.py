"""Reads tables that are columns already: Parquet, Feather, Arrow files and streams (as Hugging Face saves them).

A small file can hold a large table: a text that a dictionary has once stands in every row. So texts are read as
dictionaries, their sizes are known before a row gets its copy, and rows are handed on by bytes, not by number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from negwise.datasets import line_blocks
from negwise.datasets.cell_sizes import Sizes, may_have_text, parts, text_bytes
from negwise.datasets.data_names import shown
from negwise.datasets.delimited import IDS
from negwise.datasets.ipc_batches import MAGIC_BYTES, unpacked_sizes
from negwise.datasets.row_blocks import RowBlock
from negwise.errors import InputError, require

BATCH_ROWS = 2**19
BLOCK_BYTES = 2**24
"""Bytes of text in a block of rows, or more where a single row has more."""
READ_AHEAD = 2**16
"""Bytes of a column to read ahead. Without a limit pyarrow holds a whole row group, which may be the whole file."""
MAX_BATCH = 2**31
"""Bytes that a compressed record batch may take, which pyarrow unpacks as a whole."""
MAX_TEXTS, MAX_GROWTH = 2**30, 1000
"""Texts of a file may take that many bytes, or that many times its size, once each row has its own."""
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
    except (arrow.ArrowException, OSError, struct.error) as error:
        raise InputError(f"{shown(file)}: cannot be read as {_NAMES[form]} ({error}). Is the file complete?") from error


def table_rows(file: Path, form: str, chosen: Mapping[str, str]) -> Iterator[RowBlock]:
    """Cells by role, at most `BATCH_ROWS` and about `BLOCK_BYTES` of text at a time."""
    arrow, done, texts = require("pyarrow", extra="train"), 0, 0
    try:
        with _open(file, form, list(chosen.values())) as (_, batches):
            for whole, share in batches:
                for at in range(0, whole.num_rows, BATCH_ROWS):
                    batch = whole.slice(at, BATCH_ROWS)
                    columns = {role: batch.column(name) for role, name in chosen.items()}
                    sizes = {role: text_bytes(column) for role, column in columns.items() if may_have_text(column)}
                    texts += sum(int(size.sum()) for role, size in sizes.items() if role not in IDS)
                    _check_sizes(file, chosen, sizes, done, texts)
                    copied = [size for role, size in sizes.items() if not _stays_encoded(arrow, role, columns[role])]
                    for rows in parts(np.sum(copied, 0), BLOCK_BYTES) if copied else [slice(0, len(batch))]:
                        cells = {role: plain(arrow, column[rows]) for role, column in columns.items()}
                        numbers = np.arange(done + rows.start + 1, done + rows.stop + 1)
                        yield RowBlock(file, cells, numbers, share=share, unit="row")
                    done += len(batch)
    except MemoryError as error:  # before ArrowException, of which pyarrow's own is one too
        raise InputError(
            f"{shown(file)}, after row {done}: not enough memory ({error}). Is this the right file? If so, write it "
            "with fewer rows in a row group or record batch."
        ) from error
    except (arrow.ArrowException, OSError, struct.error) as error:
        raise InputError(f"{shown(file)}, after row {done}: reading failed ({error}). Is the file complete?") from error


def _stays_encoded(arrow: Any, role: str, column: Any) -> bool:
    """Whether no row gets a copy of its text: ids are numbered by their dictionary."""
    return role in IDS and arrow.types.is_dictionary(column.type)


def _check_sizes(file: Path, chosen: Mapping[str, str], sizes: Mapping[str, Sizes], done: int, texts: int) -> None:
    """Refuse cells that are longer than a line of a text file may be, and files that grow beyond all measure."""
    for role, size in sizes.items():
        if size.max(initial=0) > line_blocks.MAX_LINE:
            row = int(np.argmax(size > line_blocks.MAX_LINE))
            raise InputError(
                f"{shown(file)}, row {done + row + 1}: {chosen[role]} has {int(size[row]):,} bytes of text, expected "
                f"{line_blocks.MAX_LINE:,} or fewer. Is this the right column?"
            )
    on_disk = file.stat().st_size
    if texts > max(MAX_TEXTS, MAX_GROWTH * on_disk):
        raise InputError(
            f"{shown(file)}, from row {done + 1}: the texts take {texts:,} bytes as rows, and the file has "
            f"{on_disk:,}; expected {MAX_GROWTH:,} times as much or less. A few long texts stand in very many "
            "rows: is this the right file? If so, leave out repeated rows."
        )


Batches = Iterator[tuple[Any, float]]
"""Record batches, and the share of the file that is read after each."""


@contextmanager
def _open(file: Path, form: str, columns: list[str]) -> Iterator[tuple[Any, Batches]]:
    """The schema and the batches of ``columns``."""
    arrow = require("pyarrow", extra="train")
    with file.open("rb") as raw:  # not by its name, which need not be UTF-8
        if form == "parquet":
            schema, batches = _open_parquet(raw, columns)
            yield schema, batches
            return
        if columns:
            _check_batches(file, raw, MAGIC_BYTES if form == "arrow" else 0)
        if form == "arrow":
            reader = arrow.ipc.open_file(raw, options=_only(arrow, raw, columns))
            n = reader.num_record_batches
            yield reader.schema, ((reader.get_batch(at), (at + 1) / n) for at in range(n))
        else:
            stream, size = arrow.ipc.open_stream(raw), file.stat().st_size
            yield stream.schema, ((batch, raw.tell() / size) for batch in stream)


def _open_parquet(raw: BinaryIO, columns: list[str]) -> tuple[Any, Batches]:
    open_table, more = require("pyarrow.parquet", extra="train").ParquetFile, {"pre_buffer": False}
    table = open_table(raw, buffer_size=READ_AHEAD, **more)
    schema, metadata = table.schema_arrow, table.metadata
    leaves = [metadata.schema.column(at) for at in range(metadata.num_columns)]
    read = [at for at, leaf in enumerate(leaves) if _owner(leaf.path, columns) is not None]
    texts = [leaves[at].path for at in read if leaves[at].physical_type == "BYTE_ARRAY" and _is_text(leaves[at])]
    if texts:
        table = open_table(raw, buffer_size=READ_AHEAD, read_dictionary=texts, **more)
    rows = _rows_at_a_time(metadata, read)
    batches = table.iter_batches(batch_size=rows, columns=columns, use_threads=False)
    return schema, _with_shares(batches, metadata.num_rows)


def _owner(path: str, columns: list[str]) -> str | None:
    """The column that a leaf is of: ``negatives`` for ``negatives.list.element``."""
    return next((name for name in columns if path == name or path.startswith(f"{name}.")), None)


def _is_text(leaf: Any) -> bool:
    return leaf.logical_type.type in ("STRING", "NONE", "ENUM", "JSON")  # bytes may be a decimal number too


def _rows_at_a_time(metadata: Any, leaves: list[int]) -> int:
    """Rows that have about `BLOCK_BYTES`, by the sizes that the file gives for its row groups."""
    most = 0.0
    for at in range(metadata.num_row_groups):
        group = metadata.row_group(at)
        most = max(most, sum(group.column(leaf).total_uncompressed_size for leaf in leaves) / max(group.num_rows, 1))
    return int(min(max(BLOCK_BYTES / max(most, 1.0), 1), BATCH_ROWS))


def _with_shares(batches: Iterator[Any], rows: int) -> Batches:
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield batch, done / rows


def _check_batches(file: Path, raw: BinaryIO, start: int) -> None:
    """Refuse compressed batches that are too large: pyarrow unpacks each as a whole."""
    for number, size in enumerate(unpacked_sizes(raw, start), 1):
        if size > MAX_BATCH:
            raise InputError(
                f"{shown(file)}, batch {number}: unpacks to {size:,} bytes, expected {MAX_BATCH:,} or fewer. "
                "Write it with fewer rows in a batch: pyarrow's writer.write_table(table, max_chunksize=100_000)."
            )
    raw.seek(0)


def _only(arrow: Any, raw: Any, columns: list[str]) -> Any:
    """Read options for ``columns`` alone."""
    names = arrow.ipc.open_file(raw).schema.names
    raw.seek(0)
    return arrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in columns], use_threads=False)


def plain(arrow: Any, column: Any) -> Any:
    """Views and runs as the types that they stand for; texts in a dictionary stay there. Bytes stay bytes."""
    types, kind = arrow.types, column.type
    if types.is_run_end_encoded(kind):
        return require("pyarrow.compute", extra="train").run_end_decode(column)
    if types.is_string_view(kind):
        return column.cast(arrow.string())
    if types.is_binary_view(kind):
        return column.cast(arrow.binary())
    if types.is_dictionary(kind):
        values = plain(arrow, column.dictionary)
        if types.is_string(values.type) or types.is_large_string(values.type) or types.is_binary(values.type):
            return arrow.DictionaryArray.from_arrays(column.indices, values)
        return values.take(column.indices)
    return column

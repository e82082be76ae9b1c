"""A log as bytes and as text, and the table of named cells that each parser returns.

Cells stay as they are in the log (text, or JSON values). Only cells that are used become numbers, so a broken
value in an unused column does no harm.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from negwise.errors import InputError, quote

STANDARD_INPUT = "-"

GZIP_START = b"\x1f\x8b"
COMPRESSED_STARTS = (b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh")
"""The first bytes of xz, zstd, zip and bzip2 files."""

MAX_EXACT_COUNT = 2**53  # larger counts are not exact in the float64 of a log
MAX_QUOTED = 20  # names in one message


@dataclass(frozen=True)
class LogRow:
    """The cells of one row, by column name."""

    where: str
    """The position in the log, for messages: 'line 7', 'log_history[12]'."""
    cells: dict[str, object]


@dataclass(frozen=True)
class LogTable:
    """The rows of one log. ``names`` are its columns in the order of the log."""

    source: str
    kind: str
    names: tuple[str, ...]
    rows: tuple[LogRow, ...]
    trained_k: tuple[float, float] | None = None
    """The smallest and the largest K of the run, if the log has them beside its columns."""
    notes: tuple[str, ...] = ()
    """What was decided in reading, for the person who reads the estimate."""

    def values(self, name: str) -> list[object]:
        """The cells of column ``name`` that are not empty."""
        return [row.cells[name] for row in self.rows if not is_blank(row.cells.get(name))]

    def nonempty_columns(self) -> tuple[str, ...]:
        """The columns with at least one value, in the order of the log."""
        used = {name for row in self.rows for name, cell in row.cells.items() if not is_blank(cell)}
        return tuple(name for name in self.names if name in used)


def read_file(file: Path) -> bytes:
    """The bytes of ``file``, unpacked if it is a gzip file."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error}).") from error
    return _unpack(str(file), data)


def read_standard_input() -> bytes:
    """All bytes of standard input, unpacked if they are a gzip file."""
    stream = sys.stdin
    if stream is None or stream.closed:
        raise InputError("standard input: closed. Type: cat FILE | negwise estimate -, or pass the file itself.")
    return _unpack("standard input", stream.buffer.read())


def decode_text(source: str, data: bytes) -> str:
    """The text of a log: UTF-8, with or without a byte-order mark."""
    if data.startswith(COMPRESSED_STARTS):
        raise InputError(
            f"{source}: a compressed file. Expected CSV, TSV, JSON lines or JSON, as text or packed with gzip; unpack "
            "it first."
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{source}, line {line}: not UTF-8 text (byte 0x{data[error.start]:02x}). Save the file as UTF-8."
        ) from error
    if "\0" in text:
        raise InputError(f"{source}: a binary file (NUL bytes). Expected CSV, TSV, JSON lines or JSON.")
    if not text.strip():
        raise InputError(f"{source}: the file is empty.")
    return text


def is_blank(cell: object) -> bool:
    """Whether nothing was logged in the cell: no such key, JSON null, or empty text."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def quote_all(names: Sequence[str]) -> str:
    """``names`` for a message, at most `MAX_QUOTED` of them."""
    more = f" and {len(names) - MAX_QUOTED} more" if len(names) > MAX_QUOTED else ""
    return ", ".join(quote(name, width=200) for name in names[:MAX_QUOTED]) + more


def _unpack(source: str, data: bytes) -> bytes:
    if not data.startswith(GZIP_START):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(
            f"{source}: a gzip file that is broken or cut short ({error}). Pack it again, or unpack what is there: "
            "gzip -dc FILE > log."
        ) from error

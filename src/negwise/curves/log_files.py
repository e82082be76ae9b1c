"""Find a log file, read its text, and the table of named cells that each parser returns.

Cells stay as they are in the file (text, or JSON values). Only cells that are used become numbers, so a broken
value in an unused column does no harm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from negwise.errors import InputError, quote

LOG_NAMES = ("run.jsonl", "trainer_state.json", "metrics.csv")
LOG_PATTERNS = (
    "pilot/*/run.jsonl",  # a job of negwise
    "checkpoint-*/trainer_state.json",  # Hugging Face keeps the log in its checkpoints
    "version_*/metrics.csv",  # Lightning's CSVLogger
    "lightning_logs/version_*/metrics.csv",
)

COMPRESSED_STARTS = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh")
"""The first bytes of gzip, xz, zstd, zip and bzip2 files."""

MAX_EXACT_COUNT = 2**53  # larger counts are not exact in the float64 of a log
MAX_QUOTED = 20  # names in one message


@dataclass(frozen=True)
class LogRow:
    """The cells of one row, by column name."""

    where: str
    """The position in the file, for messages: 'line 7', 'log_history[12]'."""
    cells: dict[str, object]


@dataclass(frozen=True)
class LogTable:
    """The rows of one log file. ``names`` are its columns in the order of the file."""

    source: str
    kind: str
    names: tuple[str, ...]
    rows: tuple[LogRow, ...]
    trained_k: tuple[float, float] | None = None
    """The smallest and the largest K of the run, if the log has them."""

    def nonempty_columns(self) -> tuple[str, ...]:
        """The columns with at least one value, in the order of the file."""
        used = {name for row in self.rows for name, cell in row.cells.items() if not is_blank(cell)}
        return tuple(name for name in self.names if name in used)


def find_log(path: Path) -> Path:
    """The log file at ``path``, or the only log file in the folder ``path``."""
    try:
        if path.is_file():
            return path
        folder, exists = path.is_dir(), path.exists()
        found = _logs_in(path) if folder else []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if not folder:
        raise InputError(f"{path}: {'neither a file nor a folder' if exists else 'no such file or folder'}.")
    if not found:
        raise InputError(
            f"{path}: no log in this folder ({', '.join(LOG_NAMES + LOG_PATTERNS)}). Pass the file itself."
        )
    if len(found) > 1:
        files = quote_all([str(file) for file in found])
        raise InputError(f"{path}: several logs: {files}. Pass one of them, not the folder.")
    return found[0]


def read_text(file: Path) -> str:
    """The text of ``file``: UTF-8, with or without a byte-order mark."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error}).") from error
    if data.startswith(COMPRESSED_STARTS):
        raise InputError(f"{file}: a compressed file. Expected CSV, TSV, JSON lines or JSON as text; unpack it first.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{file}, line {line}: not UTF-8 text (byte 0x{data[error.start]:02x}). Save the file as UTF-8."
        ) from error
    if "\0" in text:
        raise InputError(f"{file}: a binary file (NUL bytes). Expected CSV, TSV, JSON lines or JSON.")
    if not text.strip():
        raise InputError(f"{file}: the file is empty.")
    return text


def is_blank(cell: object) -> bool:
    """Whether nothing was logged in the cell: no such key, JSON null, or empty text."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def quote_all(names: Sequence[str]) -> str:
    """``names`` for a message, at most `MAX_QUOTED` of them."""
    more = f" and {len(names) - MAX_QUOTED} more" if len(names) > MAX_QUOTED else ""
    return ", ".join(quote(name, width=200) for name in names[:MAX_QUOTED]) + more


def _logs_in(folder: Path) -> list[Path]:
    """The logs in ``folder`` itself. If it has none, the logs in the subfolders that frameworks make."""
    found = [folder / name for name in LOG_NAMES if (folder / name).is_file()]
    if found:
        return found
    found = [file for pattern in LOG_PATTERNS for file in sorted(folder.glob(pattern)) if file.is_file()]
    # Each checkpoint of a run has the log so far, so the latest one has all of it.
    latest = max(map(_checkpoint_step, found), default=None)
    return [file for file in found if _checkpoint_step(file) in (-1, latest)]


def _checkpoint_step(file: Path) -> int:
    match = re.fullmatch(r"checkpoint-([0-9]{1,18})", file.parent.name)
    return int(match[1]) if match else -1

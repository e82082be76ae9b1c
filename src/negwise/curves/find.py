"""From what the user typed to the text of one log file."""

from __future__ import annotations

import re
from pathlib import Path

from negwise.curves.table import listed
from negwise.errors import InputError

KNOWN = ("run.jsonl", "trainer_state.json", "metrics.csv")
NESTED = (
    "pilot/*/run.jsonl",  # a job of negwise
    "checkpoint-*/trainer_state.json",  # Hugging Face keeps the log in its checkpoints
    "version_*/metrics.csv",  # Lightning's CSVLogger
    "lightning_logs/version_*/metrics.csv",
)

COMPRESSED = (b"\x1f\x8b", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"BZh")
"""How gzip, xz, zstd, zip and bzip2 begin."""


def locate(path: Path) -> Path:
    """The log file that ``path`` is, or the only one in the folder that it is."""
    try:
        if path.is_file():
            return path
        folder, exists = path.is_dir(), path.exists()
        found = _logs(path) if folder else []
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}).") from error
    if not folder:
        raise InputError(f"{path}: {'neither a file nor a folder' if exists else 'no such file or folder'}.")
    if not found:
        raise InputError(f"{path}: no log in this folder ({', '.join(KNOWN + NESTED)}). Pass the file itself.")
    if len(found) > 1:
        files = listed([str(file) for file in found])
        raise InputError(f"{path}: several logs: {files}. Pass one of them, not the folder.")
    return found[0]


def _logs(folder: Path) -> list[Path]:
    """The logs in ``folder`` itself or, where there is none, in the folders that frameworks make in it."""
    found = [folder / name for name in KNOWN if (folder / name).is_file()]
    if found:
        return found
    found = [file for pattern in NESTED for file in sorted(folder.glob(pattern)) if file.is_file()]
    # each checkpoint of a run holds the log so far, so the latest holds them all
    latest = max(map(_checkpoint_step, found), default=None)
    return [file for file in found if _checkpoint_step(file) in (-1, latest)]


def _checkpoint_step(file: Path) -> int:
    match = re.fullmatch(r"checkpoint-([0-9]{1,18})", file.parent.name)
    return int(match[1]) if match else -1


def load(file: Path) -> str:
    """The text of ``file``: UTF-8, with or without a byte-order mark."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error}).") from error
    if data.startswith(COMPRESSED):
        raise InputError(f"{file}: a compressed file. Expected CSV, TSV, JSON lines or JSON as text: unpack it first.")
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

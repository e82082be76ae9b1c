"""Runs that W&B keeps on disk, ``run-ID.wandb``: blocks of 32 KiB as in LevelDB's log, with messages of ``wandb``.

The package ``wandb`` has the types of these messages, but no function that reads the file.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from negwise.curves.log_files import LogRow, LogTable
from negwise.curves.record_rows import table_of_rows
from negwise.curves.trained_k import k_of_settings
from negwise.errors import InputError, MissingExtra

START = b":W&B"
HEADER = 7
BLOCK = 32 * 1024
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_PIECE = struct.Struct("<IHB")


def is_wandb_run(data: bytes) -> bool:
    """Whether ``data`` is a run that W&B keeps on disk."""
    return data.startswith(START)


def parse_wandb_run(source: str, data: bytes) -> LogTable:
    """The history of the run, one row for each ``wandb.log``, and K from its configuration."""
    message = _message_type(source)
    rows: list[LogRow] = []
    settings: dict[str, object] = {}
    for record in _records(source, data):
        parsed: Any = message()
        try:
            parsed.ParseFromString(record)
        except Exception as error:  # google.protobuf's DecodeError: a dependency of wandb, not of negwise
            raise InputError(f"{source}: a record that is no message of W&B ({error}).") from error
        kind = parsed.WhichOneof("record_type")
        if kind == "history":
            rows.append(LogRow(f"log {len(rows)}", _items(source, parsed.history.item)))
        elif kind in ("run", "config"):
            updates = parsed.run.config.update if kind == "run" else parsed.config.update
            settings |= _items(source, updates)
    table = table_of_rows(source, "wandb_offline", rows)
    return replace(table, kind="wandb_offline", trained_k=k_of_settings(settings))


def _message_type(source: str) -> Any:
    try:
        from wandb.proto.wandb_internal_pb2 import Record
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "wandb":
            raise
        raise MissingExtra(
            f"{source}: a run of W&B on disk, and this needs the package 'wandb', which is not installed. Type: pip "
            "install wandb, or export the run's history as CSV."
        ) from error
    return Record


def _items(source: str, items: Any) -> dict[str, object]:
    """Names and values; a nested name is joined by a slash."""
    found: dict[str, object] = {}
    for item in items:
        try:
            found[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{source}: a value that is not JSON ({error}).") from error
    return found


def _records(source: str, data: bytes) -> Iterator[bytes]:
    """The records of the file, put together from their pieces. A half-written end is left out."""
    place, whole = HEADER, b""
    while place + _PIECE.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < _PIECE.size:  # a piece does not start in the last bytes of a block
            place += left
            continue
        checksum, length, kind = _PIECE.unpack_from(data, place)
        piece = data[place + _PIECE.size : place + _PIECE.size + length]
        if len(piece) < length:
            return
        if zlib.crc32(bytes([kind]) + piece) != checksum or kind not in (FULL, FIRST, MIDDLE, LAST):
            if not any(data[place:]):  # zeros that a crash left
                return
            raise InputError(f"{source}: broken at byte {place} (checksum). Copy the file again.")
        whole = piece if kind in (FULL, FIRST) else whole + piece
        if kind in (FULL, LAST):
            yield whole
        place += _PIECE.size + length

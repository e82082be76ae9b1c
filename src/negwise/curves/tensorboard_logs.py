"""TensorBoard's event files: records of a length, a checksum, an ``Event`` and its checksum."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from negwise.curves.column_roles import split_of, words_of_column
from negwise.curves.log_files import LogTable, read_file
from negwise.curves.log_folders import event_files, event_folders
from negwise.curves.scalar_series import table_of_series
from negwise.errors import InputError, quote, require

Points = dict[str, list[tuple[int, float]]]

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_NUMBERS = {"DT_HALF", "DT_BFLOAT16", "DT_FLOAT", "DT_DOUBLE", "DT_INT32", "DT_INT64"}


def is_events(data: bytes) -> bool:
    """Whether ``data`` is an event file: its first event names the version of the format."""
    return b"brain.Event:" in data[:64]


def read_event_folder(folder: Path) -> LogTable:
    """The scalars of a run: those of ``folder`` and of its folders for splits, whose name goes before the tag.

    A file that was begun later continues the run: its first step of a tag replaces that step and what comes after it.
    """
    series: Points = {}
    notes: list[str] = []
    for one in event_folders(folder):
        points: Points = {}
        for file in event_files(one):
            notes += _continue(points, _scalars(str(file), read_file(file)), file.name)
        for tag, values in points.items():
            inside = one == folder or split_of(words_of_column(tag)) is not None
            series.setdefault(tag if inside else f"{one.name}/{tag}", []).extend(values)
    return _table(str(folder), series, notes)


def parse_events(source: str, data: bytes) -> LogTable:
    """The scalars of one event file."""
    points: Points = {}
    _continue(points, _scalars(source, data), source)
    return _table(source, points, [])


def _table(source: str, series: Points, notes: list[str]) -> LogTable:
    if not series:
        raise InputError(f"{source}: nothing logged yet: its event files hold no scalars.")
    table = table_of_series(source, "tensorboard", series)
    return replace(table, notes=(*dict.fromkeys(notes), *table.notes))


def _continue(points: Points, scalars: Iterator[tuple[str | None, int, float]], file: str) -> list[str]:
    """Add the scalars of a file to ``points``. Returns notes on what they replace."""
    own: Points = {}
    starts: set[int] = set()
    for tag, step, value in scalars:
        if tag is None:
            starts |= {step for known in (own, points) if _drop_from(known, step)}
        else:
            own.setdefault(tag, []).append((step, value))
    for tag, values in own.items():
        before = points.setdefault(tag, [])
        if any(step for step, _ in before + values):  # at step 0 alone, nothing says that steps were counted
            start = min((step for step, _ in values), default=None)
            starts |= {start} if start is not None and _drop_from({tag: before}, start) else set()
        before += values
    return [
        f"{quote(file)} starts again at step {step}: its values replace the earlier ones." for step in sorted(starts)
    ]


def _drop_from(points: Points, step: int) -> bool:
    """Drop what was logged at ``step`` or later, in place. Returns whether there was any."""
    before = sum(map(len, points.values()))
    for values in points.values():
        values[:] = [one for one in values if one[0] < step]
    return sum(map(len, points.values())) < before


def _scalars(source: str, data: bytes) -> Iterator[tuple[str | None, int, float]]:
    """(tag, step, value) of each scalar in order; (None, step, nan) where the writer starts again at ``step``."""
    require("tensorboard", extra="tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog

    for number, record in enumerate(_records(source, data)):
        event: Any = Event()
        try:
            event.ParseFromString(record)
        except Exception as error:  # google.protobuf's DecodeError: a dependency of tensorboard, not of negwise
            raise InputError(f"{source}: record {number} is no event of TensorBoard ({error}).") from error
        if event.HasField("session_log") and event.session_log.status == SessionLog.START:
            yield None, event.step, float("nan")
        for value in event.summary.value:
            scalar = _scalar(value)
            if scalar is not None:
                yield value.tag, event.step, scalar


def _scalar(value: Any) -> float | None:
    """The number in a value of a summary; None for images, histograms and texts."""
    from tensorboard.compat.proto.types_pb2 import DataType
    from tensorboard.util.tensor_util import make_ndarray

    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.tensor_shape.dim:
        return None
    return float(make_ndarray(value.tensor)) if DataType.Name(value.tensor.dtype) in _NUMBERS else None


def _records(source: str, data: bytes) -> Iterator[bytes]:
    """The records of the file. A half-written last one, as a killed run leaves it, is left out."""
    from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

    place = 0
    while place + _HEADER.size <= len(data):
        length, checksum = _HEADER.unpack_from(data, place)
        if masked_crc32c(data[place : place + 8]) != checksum:
            raise InputError(f"{source}: broken at byte {place} (checksum). Copy the file again, or delete it.")
        start, end = place + _HEADER.size, place + _HEADER.size + length
        if end + _CHECKSUM.size > len(data):
            return
        record = data[start:end]
        if _may_be_scalar(record) and masked_crc32c(record) != _CHECKSUM.unpack_from(data, end)[0]:
            raise InputError(f"{source}: broken at byte {start} (checksum). Copy the file again, or delete it.")
        yield record
        place = end + _CHECKSUM.size


def _may_be_scalar(record: bytes) -> bool:
    # The checksum is computed in Python: images and graphs, which are not used, would take minutes.
    return len(record) < 2**16

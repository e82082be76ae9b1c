"""Timestamps as milliseconds since 1970 (UTC), the unit of all cached tables."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.row_blocks import Wrong, cell
from negwise.errors import quote, require

DAY_MS = 86_400_000
MILLISECONDS_FROM = 10**11
"""Numbers from here on are milliseconds. As seconds they would be later than the year 5000."""


def parse_timestamp(value: object) -> int | None:
    """Milliseconds since 1970 from seconds, milliseconds, an ISO date or a datetime; None for anything else."""
    if isinstance(value, datetime):
        return round((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(value, date):
        return (value.toordinal() - date(1970, 1, 1).toordinal()) * DAY_MS
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        try:
            return parse_timestamp(datetime.fromisoformat(str(value).strip()))
        except ValueError:
            return None
    if not math.isfinite(number) or abs(number) > 10**15:
        return None
    return round(number) if abs(number) >= MILLISECONDS_FROM else round(number * 1000)


def times_of(column: Any, wrong: Wrong) -> NDArray[np.int64]:
    """(N,) `parse_timestamp` of each cell. Cells that are no time get a message in ``wrong``."""
    times, bad = _times_in_python(column) if isinstance(column, list) else _times_by_arrow(column)
    for row in np.flatnonzero(bad).tolist():
        wrong.setdefault(row, f"time {quote(cell(column, row))} is neither seconds since 1970 nor an ISO date")
    return times


Times = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""Milliseconds, and which cells are no time."""


def _times_in_python(cells: list[Any]) -> Times:
    made = [parse_timestamp(one) for one in cells]
    return np.array([one or 0 for one in made], np.int64), np.array([one is None for one in made], bool)


def _times_by_arrow(column: Any) -> Times:
    arrow = require("pyarrow", extra="train")
    types, kind = arrow.types, column.type
    if types.is_dictionary(kind):
        return _of_rows(_times_by_arrow(column.dictionary), column)
    if types.is_string(kind) or types.is_large_string(kind):
        column = _parsed(arrow, column)
        kind = column.type
        if types.is_string(kind) or types.is_large_string(kind):
            encoded = column.dictionary_encode()
            return _of_rows(_times_in_python(encoded.dictionary.to_pylist()), encoded)
    empty = column.is_null().to_numpy(zero_copy_only=False)
    if types.is_timestamp(kind):
        # As datetime.timestamp() has it: seconds as a float, from microseconds.
        micro = column.cast(arrow.timestamp("us", kind.tz), safe=False).cast(arrow.int64()).fill_null(0)
        return np.rint(micro.to_numpy(zero_copy_only=False) / 1e6 * 1000).astype(np.int64), empty
    if types.is_date(kind):
        days = column.cast(arrow.date32(), safe=False).cast(arrow.int32()).fill_null(0).to_numpy(zero_copy_only=False)
        return days.astype(np.int64) * DAY_MS, empty
    if types.is_integer(kind) or types.is_floating(kind):
        seconds = column.cast(arrow.float64(), safe=False).fill_null(0.0).to_numpy(zero_copy_only=False)
        bad = empty | ~(np.abs(seconds) <= 10**15)  # also what is no number
        seconds = np.where(bad, 0.0, seconds)
        return np.rint(np.where(np.abs(seconds) >= MILLISECONDS_FROM, seconds, seconds * 1000)).astype(np.int64), bad
    return _times_in_python(column.to_pylist())


def _of_rows(distinct: Times, encoded: Any) -> Times:
    """The times of rows, from those of the values of their dictionary. A null is no time."""
    times, bad = distinct
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    codes[encoded.indices.is_null().to_numpy(zero_copy_only=False)] = len(times)
    return np.append(times, 0)[codes], np.append(bad, True)[codes]


def _parsed(arrow: Any, texts: Any) -> Any:
    """Texts as numbers or timestamps, where all have a form that Arrow reads as Python does; else as they are."""
    for kind in (arrow.float64(), arrow.timestamp("us"), arrow.timestamp("us", "UTC")):
        try:
            return texts.cast(kind)
        except arrow.ArrowInvalid:
            continue
    return texts


@lru_cache(maxsize=4096)
def looks_like_a_day(milliseconds: int) -> bool:
    """Whether these seconds read as a day from 1970 on: 20191112 does, which as seconds is in August 1970."""
    digits = str(milliseconds // 1000)
    try:
        return milliseconds % 1000 == 0 and len(digits) == 8 and 1970 <= date.fromisoformat(digits).year < 2100
    except ValueError:
        return False


def parse_mind_timestamp(text: str) -> int | None:
    """Parses MIND's form ``11/12/2019 2:14:46 PM``."""
    day, _, clock = text.partition(" ")
    date_ms, clock_ms = _mind_day(day), _mind_clock(clock)
    return None if date_ms is None or clock_ms is None else date_ms + clock_ms


def mind_times(texts: Any) -> Times:
    """(N,) `parse_mind_timestamp` of an Arrow column. Days and clocks repeat: each is parsed once."""
    compute = require("pyarrow.compute", extra="train")
    halves = compute.split_pattern(texts, " ", max_splits=1)
    known = compute.list_value_length(halves).to_numpy(zero_copy_only=False) == 2
    times, bad = np.zeros(len(texts), np.int64), ~known
    flat = halves.flatten()
    if not known.all():
        flat = halves.filter(require("pyarrow", extra="train").array(known)).flatten()
    for half, parse in ((flat[0::2], _mind_day), (flat[1::2], _mind_clock)):
        encoded = half.dictionary_encode()
        made = [parse(one) for one in encoded.dictionary.to_pylist()]
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        if len(codes):
            times[known] += np.array([one or 0 for one in made], np.int64)[codes]
            bad[known] |= np.array([one is None for one in made], bool)[codes]
    return times, bad


@lru_cache(maxsize=4096)
def _mind_day(text: str) -> int | None:
    try:
        month, day, year = (int(part) for part in text.split("/"))
        return (date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()) * DAY_MS
    except ValueError:
        return None


@lru_cache(maxsize=2**17)
def _mind_clock(text: str) -> int | None:
    try:
        clock, half = text.split(" ")
        hour, minute, second = (int(part) for part in clock.split(":"))
    except ValueError:
        return None
    if half not in ("AM", "PM") or not (1 <= hour <= 12 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    return (((hour % 12 + (12 if half == "PM" else 0)) * 60 + minute) * 60 + second) * 1000


def format_timestamp(milliseconds: int) -> str:
    """A timestamp as ``YYYY-MM-DD hh:mm:ss`` (UTC)."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_day(milliseconds: int) -> str:
    """The day of a timestamp as ``YYYY-MM-DD`` (UTC)."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()

"""Timestamps as milliseconds since 1970 (UTC), the unit of all cached tables."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from functools import lru_cache

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


@lru_cache(maxsize=4096)
def looks_like_a_day(milliseconds: int) -> bool:
    """Whether these seconds read as a day from 1970 on: 20191112 does, which as seconds is in August 1970."""
    digits = str(milliseconds // 1000)
    try:
        return milliseconds % 1000 == 0 and len(digits) == 8 and 1970 <= date.fromisoformat(digits).year < 2100
    except ValueError:
        return False


def parse_mind_timestamp(text: str) -> int | None:
    """Parses MIND's form ``11/12/2019 2:14:46 PM``. strptime would take most of the time of reading MIND."""
    try:
        day, clock, half = text.split(" ")
        hour, minute, second = (int(part) for part in clock.split(":"))
        since = _day(day)
    except ValueError:
        return None
    if half not in ("AM", "PM") or not (1 <= hour <= 12 and 0 <= minute < 60 and 0 <= second < 60):
        return None
    hour = hour % 12 + (12 if half == "PM" else 0)
    return since + ((hour * 60 + minute) * 60 + second) * 1000


@lru_cache(maxsize=4096)
def _day(text: str) -> int:
    month, day, year = (int(part) for part in text.split("/"))
    return (date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()) * DAY_MS


def format_timestamp(milliseconds: int) -> str:
    """A timestamp as ``YYYY-MM-DD hh:mm:ss`` (UTC)."""
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def format_day(milliseconds: int) -> str:
    """The day of a timestamp as ``YYYY-MM-DD`` (UTC)."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()

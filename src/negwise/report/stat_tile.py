"""A large number at the top of a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stat:
    """One large number with its label, error bar and note. ``tone`` is "up", "down" or empty, and sets the colour."""

    label: str
    value: str
    error: str = ""
    note: str = ""
    tone: str = ""

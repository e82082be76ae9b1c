"""Data, settings and versions as lines of a name and a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from negwise.datasets import DataReport
from negwise.report.words import count

Facts = list[tuple[str, str]]
PROBLEMS_SHOWN = 10


def data_facts(data: DataReport) -> Facts:
    """What a data report says: counts, what bounds K, problems."""
    found: Facts = [("path", data.path), ("kind", data.kind)]
    found += [(name.replace("_", " "), shown(value)) for name, value in data.counts.items()]
    if data.density is not None:
        found.append(("density", shown(data.density)))
    balance = "positives only" if data.label_balance is None else f"{shown(data.label_balance)} are positive"
    found.append(("label balance", balance))
    has = data.negatives
    spread = f"{shown(has.least)} to {shown(has.most)}, median {shown(has.median)}"
    found += [("negatives of a positive", f"{spread} ({has.source})"), ("ceiling for K", shown(has.most))]
    found += [(f"true {name}", shown(value)) for name, value in (data.truth or {}).items()]
    found += [("content hash", data.digest), ("bad rows skipped", count(len(data.problems)))]
    return [*found, *(("problem", str(problem)) for problem in data.problems[:PROBLEMS_SHOWN])]


def plain_facts(values: Mapping[str, Any], inside: str = "") -> Facts:
    """Settings by name, nested ones with the name of what they are in; what was left to its default is not shown."""
    found: Facts = []
    for key, value in values.items():
        name = f"{inside}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            found += plain_facts(value, f"{name}: ")
        elif value is not None:
            found.append((name, shown(value)))
    return found


def shown(value: Any) -> str:
    """A value from a record, for reading."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}" if abs(value) >= 10_000 else str(value)
        case float():
            return count(value)
        case list() | tuple():
            return ", ".join(shown(item) for item in value) or "none"
        case dict():
            return ", ".join(f"{name}: {shown(item)}" for name, item in value.items()) or "none"
        case _:
            return str(value)

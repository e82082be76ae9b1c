"""Data, settings and versions as lines of a name and a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from negwise.report.words import count

Facts = list[tuple[str, str]]
PROBLEMS_SHOWN = 10


def data_facts(data: Mapping[str, Any]) -> Facts:
    """What a data report says: counts, what bounds K, problems. Whatever is not there is left out."""
    found: Facts = [(name, str(data[name])) for name in ("path", "kind") if data.get(name) is not None]
    found += [(name.replace("_", " "), shown(value)) for name, value in _part(data, "counts").items()]
    if data.get("density") is not None:
        found.append(("density", shown(data["density"])))
    if "label_balance" in data:
        balance = data["label_balance"]
        found.append(("label balance", "positives only" if balance is None else f"{shown(balance)} are positive"))
    has = _part(data, "negatives")
    if has:
        spread = f"{shown(has.get('least'))} to {shown(has.get('most'))}, median {shown(has.get('median'))}"
        found.append(("negatives of a positive", f"{spread} ({has.get('source', 'source unknown')})"))
        found.append(("ceiling for K", shown(has.get("most"))))
    found += [(f"true {name}", shown(value)) for name, value in _part(data, "truth").items()]
    if data.get("digest"):
        found.append(("content hash", str(data["digest"])))
    problems = _list(data, "problems")
    found.append(("bad rows skipped", count(len(problems))))
    return [*found, *(("problem", _problem(problem)) for problem in problems[:PROBLEMS_SHOWN])]


def examples(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """A few rows of the data."""
    rows = [row for row in _list(data, "examples") if isinstance(row, Mapping)]
    return [{str(name): shown(value) for name, value in row.items()} for row in rows]


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


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = data.get(name)
    return value if isinstance(value, Mapping) else {}


def _list(data: Mapping[str, Any], name: str) -> list[Any]:
    value = data.get(name)
    return value if isinstance(value, list) else []


def _problem(problem: Any) -> str:
    if not isinstance(problem, Mapping):
        return shown(problem)
    return f"{problem.get('file')}, {problem.get('where')}: {problem.get('what')}"

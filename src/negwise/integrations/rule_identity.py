"""Whether two rules are the same one: by their type and fields and, open-loop ones, by the K that they give.

An identity goes through a checkpoint, so it is made of JSON's own types. It is taken before training, and rules are
frozen.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from negwise.protocols import OpenLoopRule, Rule

PARTS = 64
"""K of an open-loop rule is compared at both ends of so many equal parts of training."""

Identity = dict[str, Any]


def describe(rule: Rule) -> str:
    """The text of ``rule``, the same in every process: Python's own has an address in memory."""
    if type(rule).__repr__ is not object.__repr__:
        return repr(rule)
    fields = {name: _plain(value) for name, value in _fields_of(rule).items()}
    return (
        f"{type(rule).__qualname__}({', '.join(f'{name}={one!r}' for name, (one, known) in fields.items() if known)})"
    )


def identity(rule: Rule) -> Identity:
    """Type, fields and, of an open-loop rule, K over training. ``unknown`` are the fields that cannot be compared."""
    fields = {name: _plain(value) for name, value in _fields_of(rule).items()}
    return {
        "type": type(rule).__qualname__,
        "fields": {name: value for name, (value, known) in fields.items() if known},
        "unknown": sorted(name for name, (_, known) in fields.items() if not known),
        "ks": [float(rule(part / PARTS)) for part in range(PARTS + 1)] if isinstance(rule, OpenLoopRule) else None,
    }


def depends_on_fraction(one: Identity) -> bool:
    """Whether K of this open-loop rule is another one at another fraction of training."""
    return one["ks"] is not None and len(set(one["ks"])) > 1


def cannot_be_told(one: Identity) -> bool:
    """Whether rules with this identity may differ: by functions or objects in their fields, where K is not known."""
    return bool(one["unknown"]) and one["ks"] is None


def difference(saved: Identity, mine: Identity) -> str:
    """What differs beside the texts of the rules, as ``" (K at 50% of training was 4, and is 8)"``."""
    pairs = zip(saved["ks"] or (), mine["ks"] or (), strict=False)
    for part, (before, now) in enumerate(pairs):
        if before != now:
            return f" (K at {part / PARTS:.0%} of training was {before:.4g}, and is {now:.4g})"
    return ""


def _fields_of(rule: Any) -> dict[str, Any]:
    if dataclasses.is_dataclass(rule):
        return {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}
    return dict(getattr(rule, "__dict__", {}))


def _plain(value: Any) -> tuple[Any, bool]:
    """``value`` in JSON's types, and whether that says all of it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value, True
    if isinstance(value, list | tuple):
        parts = [_plain(one) for one in value]
        return [one for one, _ in parts], all(known for _, known in parts)
    if isinstance(value, dict):
        named = {str(name): _plain(one) for name, one in value.items()}
        return {name: one for name, (one, _) in named.items()}, all(known for _, known in named.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(_fields_of(value))
    if hasattr(value, "tolist"):  # a NumPy or torch array
        return _plain(value.tolist())
    return None, False

"""A request is a frozen dataclass; each of its fields is an option: name, type, default and help in one place.

The command line makes its options from the fields, Python its signatures, and ``job.json`` and ``config.json`` their
content. A field's name is the option's: ``batch_size`` is ``--batch-size``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from negwise.errors import InputError


@dataclass(frozen=True)
class Option:
    """How a field appears on the command line.

    ``flag`` replaces ``--field-name``. ``show_default`` says what None means. ``parse`` makes the value from what was
    typed: a text, or a list of texts where ``repeatable``. ``argument``: positional. ``on_command_line=False``: only
    Python sets it. ``identity=False``: a run may resume with another value.
    """

    help: str
    flag: str | None = None
    show_default: str | None = None
    parse: Callable[[Any], Any] | None = None
    repeatable: bool = False
    argument: bool = False
    on_command_line: bool = True
    identity: bool = True


def option(default: Any = MISSING, *, default_factory: Any = MISSING, help: str, **more: Any) -> Any:  # noqa: A002
    """A field of a request: its default and its `Option`."""
    metadata = {"option": Option(help, **more)}
    if default_factory is not MISSING:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def options_of(kind: type) -> dict[str, Option]:
    """The options of a request type, by field."""
    return {one.name: one.metadata["option"] for one in fields(kind)}


def identity_of(request: Any) -> dict[str, Any]:
    """The values that may not change when a run or a job resumes, as plain JSON."""
    kept = {name: getattr(request, name) for name, one in options_of(type(request)).items() if one.identity}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


def check_count(name: str, value: int | None, least: int = 1) -> None:
    """A whole number from ``least`` on, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise InputError(f"{name}: got {value!r}, expected a whole number, {least} or more.")


def check_share(name: str, value: float | None) -> None:
    """A number from 0 to 1, or None."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1):
        raise InputError(f"{name}: got {value!r}, expected a number from 0 to 1.")


def check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """One of ``choices``, or None."""
    if value is not None and value not in choices:
        raise InputError(f"{name}: got {value!r}, expected one of {', '.join(choices)}.")


def split_commas(text: str) -> tuple[str, ...]:
    """``"1, 4,warm:20"`` as ``("1", "4", "warm:20")``."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_columns(pairs: list[str] | None) -> dict[str, str]:
    """``["user=customer"]`` as ``{"user": "customer"}``."""
    found: dict[str, str] = {}
    for pair in pairs or ():
        role, equals, name = (part.strip() for part in pair.partition("="))
        if not equals or not role or not name:
            raise InputError(f"--column: got {pair!r}, expected a role and a column, as user=customer.")
        if role in found:
            raise InputError(f"--column: got {role}={found[role]} and {role}={name}, expected each role once.")
        found[role] = name
    return found


def parse_settings(pairs: list[str] | None) -> dict[str, int | float]:
    """``["dropout=0.1"]`` as ``{"dropout": 0.1}``; whole numbers stay whole."""
    found: dict[str, int | float] = {}
    for pair in pairs or ():
        name, _, value = (part.strip() for part in pair.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number):
            raise InputError(f"--setting: got {pair!r}, expected a name and a number, as dropout=0.1.")
        if name in found:
            raise InputError(f"--setting: got {name}={found[name]} and {pair}, expected each name once.")
        found[name] = int(number) if number.is_integer() else number
    return found


def parse_rates(text: str) -> tuple[float, ...] | None:
    """``"3e-4,1e-3"`` as ``(0.0003, 0.001)``; None for nothing."""
    try:
        return tuple(float(part) for part in split_commas(text)) or None
    except ValueError as error:
        raise InputError(
            f"--learning-rate: got {text!r}, expected a number or numbers with commas, as 3e-4,1e-3."
        ) from error


def check_rates(rates: tuple[float, ...] | None) -> None:
    """Learning rates: finite, above 0, each once."""
    for rate in rates or ():
        if not isinstance(rate, int | float) or not 0 < rate < float("inf"):
            raise InputError(f"learning_rate: got {rate}, expected a number above 0, as 1e-3.")
    if rates is not None and len({f"{rate:g}" for rate in rates}) < len(rates):
        raise InputError(f"learning_rate: got {', '.join(f'{rate:g}' for rate in rates)}, expected each once.")

"""Values from the words of a command line."""

from __future__ import annotations

from negwise.errors import InputError


def numbers(flag: str, text: str) -> float | list[float] | None:
    """One number, or a list of them, from the command line."""
    if not text.strip():
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"{flag}: got {text!r}, expected a number or numbers with commas, as 0.61,0.68,0.7."
        ) from error
    return values[0] if len(values) == 1 else values


def settings(pairs: list[str] | None) -> dict[str, int | float]:
    """Arguments of a model from the command line."""
    found: dict[str, int | float] = {}
    for pair in pairs or ():
        name, _, value = pair.partition("=")
        try:
            number = float(value)
        except ValueError as error:
            raise InputError(f"--setting: got {pair!r}, expected a name and a number, as dropout=0.1.") from error
        found[name.strip()] = int(number) if number.is_integer() else number
    return found


def columns(pairs: list[str] | None) -> dict[str, str]:
    """Roles of columns from the command line."""
    found = {}
    for pair in pairs or ():
        role, equals, name = pair.partition("=")
        if not equals:
            raise InputError(f"--column: got {pair!r}, expected a role and a column, as user=customer.")
        found[role.strip()] = name
    return found

"""What a call was given where it takes several values: any iterable of them, and nothing that only looks like one.

A frame and a dictionary can be looped over too, and give the names of their columns: those would be taken for texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from negwise.errors import InputError, quote


def several(what: str, values: Any) -> list[Any]:
    """``values`` as a list."""
    check_several(what, values)
    return list(values)


def check_several(what: str, values: Any) -> None:
    """Refuse one text, a frame, a dictionary, and what cannot be looped over."""
    if isinstance(values, str | bytes):
        raise InputError(f"{what}: got one text, {quote(values)}, expected several: write [{quote(values)}].")
    names = columns_of(values)
    if names is not None:
        found = ", ".join(map(str, names[:5])) or "nothing"
        if isinstance(values, Mapping):
            raise InputError(f"{what}: got a dictionary with {found}, expected several. Pass a list, as [one].")
        column = quote(names[0]) if names else "NAME"
        raise InputError(
            f"{what}: got a {type(values).__name__} with {found}, expected several values. Pass one of its columns, as "
            f"frame[{column}]."
        )
    if not _can_be_looped_over(values):
        raise InputError(f"{what}: got {quote(values)}, expected several: write [{quote(values)}].")


def columns_of(values: Any) -> list[Any] | None:
    """The names of the columns of a frame, a table, a data set or a dictionary; None for other things."""
    if isinstance(values, Mapping):
        return list(values)
    names = getattr(values, "column_names", None)
    names = getattr(values, "columns", None) if names is None else names
    return list(names) if isinstance(names, Iterable) and not isinstance(names, str) else None


def _can_be_looped_over(values: Any) -> bool:
    try:
        iter(values)
    except TypeError:
        return False
    return True

"""What a setting of a model may be; anything else is refused by name, when the model is made."""

from __future__ import annotations

from numbers import Integral, Real

from negwise.errors import InputError


def counted(**settings: object) -> None:
    """Each is a whole number of 1 or more: a width, a number of layers, of heads, of items."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name}={value!r}, expected a whole number, 1 or more")


def shares(**settings: object) -> None:
    """Each is a probability."""
    for name, value in settings.items():
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise InputError(f"{name}={value!r}, expected a share from 0 to 1")

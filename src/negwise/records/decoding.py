"""Typed records from JSON and back: one validating decoder for every file that negwise writes.

A record is a frozen dataclass. `decode` checks each field against its type and says which file and which field is
wrong. It ignores fields that it does not know, so that an older reader can read newer files.
"""

from __future__ import annotations

import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from negwise.errors import InputError
from negwise.files import REPAIR, read_json, write_json

FORMAT = 1
"""Raised when a reader of before could misread a file of now."""
T = TypeVar("T")
Decoder = Callable[[Any], Any]


def read_record(kind: type[T], path: str | os.PathLike[str]) -> T:
    """The record of type ``kind`` in the JSON file ``path``; one of a newer format is refused."""
    record = decode(kind, read_json(path), str(path))
    if getattr(record, "format", FORMAT) > FORMAT:
        raise InputError(f"{path}: written by a newer negwise. Install that version, or choose another folder.")
    return record


def write_record(path: str | os.PathLike[str], record: Any) -> Path:
    """Write ``record``, a dataclass, as JSON; a reader never sees half of it."""
    return write_json(path, encode(record))


def decode(kind: type[T], value: Any, where: str) -> T:
    """``value``, plain JSON, as the dataclass ``kind``; ``where`` names the file in an error."""
    try:
        return _decoder(kind)(value)  # type: ignore[arg-type]
    except _Mismatch as error:
        raise InputError(f"{where}: {error}. {REPAIR}") from None


def encode(record: Any) -> dict[str, Any]:
    """A record as plain JSON: dataclasses become objects, tuples become lists."""
    return _plain(asdict(record))


class _Mismatch(Exception):
    """A value of another type than its field's; ``place`` grows on the way up to the record."""

    def __init__(self, expected: str, value: Any, place: str = "") -> None:
        self.expected, self.value, self.place = expected, value, place

    def __str__(self) -> str:
        came = "missing" if self.value is MISSING else repr(self.value)[:80]
        return f"{self.place.lstrip('.') or 'its content'} is {came}, expected {self.expected}"


@cache
def _decoder(kind: Any) -> Decoder:
    """The function that checks a value against the type ``kind``; made once for each type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if is_dataclass(kind):
        return _of_dataclass(kind)
    if origin is Literal:
        return _checked(lambda value: value in arguments, " or ".join(map(repr, arguments)))
    if origin in (Union, types.UnionType):  # X | None is the only union in records
        own = _decoder(next(one for one in arguments if one is not types.NoneType))
        return lambda value: None if value is None else own(value)
    if origin is tuple:
        return _of_tuple(arguments)
    if origin in (dict, Mapping):
        return _of_mapping(_decoder(arguments[1]))
    return _PLAIN[kind]


def _of_dataclass(kind: Any) -> Decoder:
    hints = get_type_hints(kind)
    parts = [(field.name, _decoder(hints[field.name])) for field in fields(kind)]
    required = [field.name for field in fields(kind) if field.default is field.default_factory is MISSING]

    def decode_record(value: Any) -> Any:
        _is_object(value)
        for name in required:
            if name not in value:
                raise _Mismatch("a value", MISSING, f".{name}")
        return kind(**{name: _inside(f".{name}", decoder, value[name]) for name, decoder in parts if name in value})

    return decode_record


def _of_tuple(arguments: tuple[Any, ...]) -> Decoder:
    """``tuple[X, ...]``, or one type for each place."""
    repeated = arguments[1:] == (Ellipsis,)
    decoders = [_decoder(one) for one in (arguments[:1] if repeated else arguments)]

    def decode_tuple(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not (repeated or len(value) == len(decoders)):
            raise _Mismatch("a list" if repeated else f"a list of {len(decoders)}", value)
        each = decoders * len(value) if repeated else decoders
        return tuple(_inside(f"[{at}]", each[at], item) for at, item in enumerate(value))

    return decode_tuple


def _of_mapping(decoder: Decoder) -> Decoder:
    def decode_mapping(value: Any) -> dict[str, Any]:
        return {name: _inside(f".{name}", decoder, item) for name, item in _is_object(value).items()}

    return decode_mapping


def _inside(place: str, decoder: Decoder, value: Any) -> Any:
    try:
        return decoder(value)
    except _Mismatch as error:
        raise _Mismatch(error.expected, error.value, place + error.place) from None


def _checked(holds: Callable[[Any], bool], expected: str) -> Decoder:
    def check(value: Any) -> Any:
        if not holds(value):
            raise _Mismatch(expected, value)
        return value

    return check


_is_object = _checked(lambda value: isinstance(value, dict), "an object")
_PLAIN: dict[Any, Decoder] = {
    # Python's True is an int; JSON's true is no number.
    float: _checked(lambda v: isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v), "a number"),
    int: _checked(lambda v: isinstance(v, int) and not isinstance(v, bool), "a whole number"),
    str: _checked(lambda v: isinstance(v, str), "text"),
    bool: _checked(lambda v: isinstance(v, bool), "true or false"),
}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value

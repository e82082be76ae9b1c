"""A verb from its request type: each field of the request becomes an option, with its type, default and help."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer

from negwise.requests import Option

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def command(kind: type, work: Callable[[Any, bool], None]) -> Callable[..., None]:
    """A function for typer: its parameters are the fields of ``kind``, and it calls ``work(request, as_json)``.

    Its help is the docstring of ``work``, its name that of ``work`` without ``_verb``.
    """
    hints = get_type_hints(kind)
    shown = [one for one in fields(kind) if one.metadata["option"].on_command_line]

    def run(as_json: bool = False, **typed: Any) -> None:
        values = {one.name: _value(one.metadata["option"], typed[one.name]) for one in shown}
        # What was not typed is left to the request, which may have a default that no text stands for.
        work(kind(**{name: value for name, value in values.items() if value is not None}), as_json)

    parameters = [_parameter(one, hints[one.name]) for one in shown]
    own = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)
    run.__signature__ = inspect.Signature([*parameters, own])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*parameters, own]}
    run.__name__, run.__doc__ = work.__name__.removesuffix("_verb"), work.__doc__
    return run


def _value(option: Option, typed: Any) -> Any:
    return typed if option.parse is None or typed is None else option.parse(typed)


def _parameter(one: Field[Any], hint: Any) -> inspect.Parameter:
    option: Option = one.metadata["option"]
    kind: Any = _typed_as(option, hint)
    required = one.default is MISSING and one.default_factory is MISSING
    words: dict[str, Any] = {"help": option.help}
    if option.show_default is not None:
        words["show_default"] = option.show_default
    if option.argument:
        kind = kind | None if one.default is None else kind
        annotation: Any = Annotated[kind, typer.Argument(**words)]
    else:
        optional = not required and one.default is None
        annotation = Annotated[kind | None if optional else kind, typer.Option(*_flags(option), **words)]
    default = inspect.Parameter.empty if required else _default(one, option)
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _flags(option: Option) -> tuple[str, ...]:
    return () if option.flag is None else (option.flag,)


def _typed_as(option: Option, hint: Any) -> Any:
    """The type that typer reads: a text where the request has a parser, else the field's own."""
    if option.parse is not None:
        return list[str] if option.repeatable else str
    if get_origin(hint) in (Union, types.UnionType):
        return next(one for one in get_args(hint) if one is not types.NoneType)
    return hint


def _default(one: Field[Any], option: Option) -> Any:
    """What ``--help`` shows; a value that has a parser is shown as it is typed."""
    if one.default is MISSING or one.default is None:
        return [] if option.repeatable else None
    return ",".join(one.default) if option.parse is not None else one.default

"""Docstrings in the text of a module, without running it.

A full parse of 100 MB of source takes minutes, and all but the docstrings of it would be thrown away. So a lexer of
one regular expression steps over strings and comments, and only what follows the header of a def or class (or
stands in a call of ``add_newdoc`` or ``add_docstr``, with which NumPy and torch document their C functions) is parsed,
with `ast`. `by_parsing` is the plain reference for the former.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple

_LEXEME = re.compile(
    r"""
    \#[^\n]*
  | (?P<doc> [rRuU]? (?: \"\"\" [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* \"\"\"
                       | '''    [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* '''    ) )
  | "(?: [^"\\\n] | \\. )*"
  | '(?: [^'\\\n] | \\. )*'
    """,
    re.VERBOSE | re.DOTALL,
)
_HEADER = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)[ \t]+(\w+)", re.MULTILINE)
_ADDED = re.compile(r"\badd_(?:newdoc|docstr)(?:_\w+)?\(\s*([\w.'\"]+(?:\s*,\s*\(?\s*['\"][\w.]*['\"])*)\s*,\s*\Z")


class Documented(NamedTuple):
    """An object's own name (the last part of it; "" for a module) and its docstring, without indentation."""

    name: str
    text: str


def docstrings(source: str) -> Iterator[Documented]:
    """Triple-quoted docstrings of a module, its classes and functions, in the order of the text."""
    headers = [(match.start(), match[1]) for match in _HEADER.finditer(source)]
    at = 0
    first = True
    for match in _LEXEME.finditer(source):
        if match.lastgroup != "doc":
            continue
        place = match.start()
        before = source[max(0, place - 400) : place]
        while at < len(headers) and headers[at][0] < place:
            at += 1
        name = None
        if first and not _code(source[:place]):
            name = ""
        elif _code(before)[-1:] == ":" and at and _is_header(source[headers[at - 1][0] : place]):
            name = headers[at - 1][1]
        elif added := _ADDED.search(before):
            name = re.split(r"[\s,.'\"()]+", added[1].rstrip("'\" "))[-1]
        first = False
        if name is not None and (text := _value(match[0])) is not None:
            yield Documented(name, inspect.cleandoc(text))


def by_parsing(source: str) -> Iterator[Documented]:
    """The same of modules, classes and functions by a full parse, whatever quotes they use."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield Documented(getattr(node, "name", ""), text)


def _code(text: str) -> str:
    """``text`` without strings, comments and the white space around."""
    return _LEXEME.sub("", text).strip()


def _is_header(text: str) -> bool:
    """Whether ``text``, which begins with def or class, is nothing but that header."""
    depth = 0
    code = _code(text)
    for place, character in enumerate(code):
        depth += (character in "([{") - (character in ")]}")
        if character == ":" and depth == 0:
            return place == len(code) - 1
    return False


def _value(literal: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # \d in someone else's docstring
            return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError):
        return None

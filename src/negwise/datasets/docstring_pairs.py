"""``docs``: real title-body pairs from the docstrings of packages on this machine.

The sources of the standard library, NumPy, SciPy and torch are parsed, never imported. The first paragraph of a
docstring is the title, the rest the body (of a single paragraph: the first sentence and the rest). The object's own
name is removed from the body, so that pairs cannot be matched by name alone. CamelCase and snake_case are split into
words. The pairs depend on the installed versions, so the facts include a hash of the pairs.

A full parse of 100 MB of source takes minutes, and only the docstrings would be used. Instead, a lexer of one regular
expression skips strings and comments. `ast` parses only strings after the header of a def or class, or in a call of
``add_newdoc`` or ``add_docstr``, with which NumPy and torch document their C functions. `by_parsing` is the reference
implementation for defs and classes.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import inspect
import json
import os
import re
import sysconfig
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from negwise.datasets.read_pairs import PairWriter
from negwise.datasets.table_cache import LAYOUT, VERSION, get_or_build
from negwise.datasets.text_cells import single_texts

PACKAGES = ("numpy", "scipy", "torch")
SKIPPED_FOLDERS = {"site-packages", "__pycache__"}
MIN_WORDS = 3
BLOCK_PAIRS = 4096
"""Pairs that are written at a time."""

_CAMEL_CASE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_UNDERLINE = re.compile(r"^\s*[-=~^*]{3,}\s*$", re.MULTILINE)
_SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)(\s*->.*)?", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.:])\s+")
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
_ADD_DOCSTRING = re.compile(
    r"\badd_(?:newdoc|docstr)(?:_\w+)?\(\s*([\w.'\"]+(?:\s*,\s*\(?\s*['\"][\w.]*['\"])*)\s*,\s*\Z"
)


def read_docstring_pairs(cache: Path, roots: Sequence[Path] | None = None) -> tuple[Path, dict[str, Any]]:
    """Folder of the cached pairs under ``roots``, and facts: ``digest`` of the pairs, ``files``, ``unread``."""
    places = source_roots() if roots is None else roots
    found = [entry for root in places for entry in source_files(root)]
    stamps = [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in found]
    key = hashlib.sha256(json.dumps([VERSION, LAYOUT, "docs", stamps]).encode()).hexdigest()[:32]
    return get_or_build(key, cache, lambda folder: _build([Path(entry.path) for entry in found], folder))


def source_roots() -> list[Path]:
    """The source folders; a package that is not installed has none."""
    specs = [importlib.util.find_spec(package) for package in PACKAGES]
    found = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return [Path(sysconfig.get_path("stdlib")), *found]


def source_files(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Python files under ``folder``, sorted by name within each folder: every machine reads them in the same order."""
    # os.scandir, because a start with a full cache does little else, and Path.rglob takes three times as long.
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED_FOLDERS:
                yield from source_files(entry.path)
        elif entry.name.endswith(".py") and entry.is_file():
            yield entry


def title_body_pairs(source: str) -> Iterator[tuple[str, str]]:
    """(title, body) of each docstring of a module, if both have at least `MIN_WORDS` words."""
    for name, text in docstrings(source):
        title, body = _split_title(_UNDERLINE.sub("", text))
        if name:
            body = re.sub(rf"\b{re.escape(name)}\b", " ", body)
        title, body = (" ".join(_CAMEL_CASE.sub(" ", side).split()) for side in (title, body))
        if min(title.count(" "), body.count(" ")) >= MIN_WORDS - 1:
            yield title, body


class Docstring(NamedTuple):
    """The last part of an object's name ("" for a module) and its docstring, without indentation."""

    name: str
    text: str


def docstrings(source: str) -> Iterator[Docstring]:
    """Triple-quoted docstrings of a module, its classes and functions, in file order."""
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
        if first and not _strip_strings(source[:place]):
            name = ""
        elif _strip_strings(before)[-1:] == ":" and at and _is_header(source[headers[at - 1][0] : place]):
            name = headers[at - 1][1]
        elif added := _ADD_DOCSTRING.search(before):
            name = re.split(r"[\s,.'\"()]+", added[1].rstrip("'\" "))[-1]
        first = False
        if name is not None and (text := _literal_value(match[0])) is not None:
            yield Docstring(name, inspect.cleandoc(text))


def by_parsing(source: str) -> Iterator[Docstring]:
    """Docstrings of modules, classes and functions by a full parse, with any kind of quotes."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield Docstring(getattr(node, "name", ""), text)


def _build(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    seen: set[bytes] = set()
    digest = hashlib.sha256()
    unread: list[str] = []
    with PairWriter(folder) as writer:
        waiting: list[tuple[str, str]] = []
        for file in files:
            source = _read_source(file)
            if source is None:
                unread.append(str(file))
                continue
            for title, body in title_body_pairs(source):
                name = hashlib.blake2b(f"{title}\0{body}".encode(), digest_size=16).digest()
                if name not in seen:
                    seen.add(name)
                    digest.update(name)
                    waiting.append((title, body))
            if len(waiting) >= BLOCK_PAIRS:
                _write(writer, waiting)
        _write(writer, waiting)
    facts = {"path": "docs", "kind": "pairs", "digest": digest.hexdigest()[:32], "parts": []}
    return {**facts, "files": len(files), "unread": unread, "pairs": len(seen)}


def _write(writer: PairWriter, waiting: list[tuple[str, str]]) -> None:
    titles, bodies = ([pair[side] for pair in waiting] for side in (0, 1))
    writer.write(single_texts(titles), single_texts(bodies), (), np.arange(len(waiting)))
    waiting.clear()


def _read_source(file: Path) -> str | None:
    """The text of a module in its declared encoding; None if it is not text (test data of a parser)."""
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def _split_title(text: str) -> tuple[str, str]:
    parts = _PARAGRAPH.split(text.strip(), maxsplit=1)
    if len(parts) == 2 and _SIGNATURE.fullmatch(parts[0].strip()):  # as in C: "abs(x) -> Tensor"
        parts = _PARAGRAPH.split(parts[1].strip(), maxsplit=1)
    if len(parts) == 1:
        parts = _SENTENCE.split(parts[0], maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def _strip_strings(text: str) -> str:
    """``text`` without strings, comments and surrounding white space."""
    return _LEXEME.sub("", text).strip()


def _is_header(text: str) -> bool:
    """Whether ``text``, which begins with def or class, is only that header."""
    depth = 0
    code = _strip_strings(text)
    for place, character in enumerate(code):
        depth += (character in "([{") - (character in ")]}")
        if character == ":" and depth == 0:
            return place == len(code) - 1
    return False


def _literal_value(literal: str) -> str | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as \d in the docstring
            return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError):
        return None

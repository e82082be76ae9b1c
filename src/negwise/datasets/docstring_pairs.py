"""``docs``: real title-body pairs from the docstrings that are already on this machine.

The source of the standard library, NumPy, SciPy and torch is parsed, never imported. The first paragraph of a
docstring is the title and the rest the body (of a single paragraph: the first sentence and the rest). The object's
own name is taken out of the body, so that the two cannot be matched by name alone, and CamelCase and snake_case
are split into words. What is found depends on the versions installed, so the facts carry a hash of the pairs.

A full parse of 100 MB of source takes minutes, and all but the docstrings of it would be thrown away. So a lexer of
one regular expression steps over strings and comments, and only what follows the header of a def or class (or
stands in a call of ``add_newdoc`` or ``add_docstr``, with which NumPy and torch document their C functions) is parsed,
with `ast`. `by_parsing` is the plain reference for the former.
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

from negwise.datasets.read_pairs import PairWriter
from negwise.datasets.table_cache import VERSION, get_or_build

PACKAGES = ("numpy", "scipy", "torch")
SKIPPED_FOLDERS = {"site-packages", "__pycache__"}
MIN_WORDS = 3

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
    """The cached tables of the pairs under ``roots``, and facts: ``digest`` (of the pairs), ``files``, ``unread``."""
    places = source_roots() if roots is None else roots
    found = [entry for root in places for entry in source_files(root)]
    stamps = [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in found]
    key = hashlib.sha256(json.dumps([VERSION, "docs", stamps]).encode()).hexdigest()[:32]
    return get_or_build(key, cache, lambda folder: _build([Path(entry.path) for entry in found], folder))


def source_roots() -> list[Path]:
    """Where the sources lie; a package that is not installed has none."""
    specs = [importlib.util.find_spec(package) for package in PACKAGES]
    found = [Path(place) for spec in specs if spec for place in spec.submodule_search_locations or ()]
    return [Path(sysconfig.get_path("stdlib")), *found]


def source_files(folder: str | os.PathLike[str]) -> Iterator[os.DirEntry[str]]:
    """Python files under ``folder``, sorted by name within each folder, so that every machine reads in one order."""
    # os.scandir and not Path.rglob: a second start does nothing else, and rglob takes three times as long
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in SKIPPED_FOLDERS:
                yield from source_files(entry.path)
        elif entry.name.endswith(".py") and entry.is_file():
            yield entry


def title_body_pairs(source: str) -> Iterator[tuple[str, str]]:
    """(title, body) of each docstring of a module that has both, of at least `FEWEST_WORDS` words each."""
    for name, text in docstrings(source):
        title, body = _split_title(_UNDERLINE.sub("", text))
        if name:
            body = re.sub(rf"\b{re.escape(name)}\b", " ", body)
        title, body = (" ".join(_CAMEL_CASE.sub(" ", side).split()) for side in (title, body))
        if min(title.count(" "), body.count(" ")) >= MIN_WORDS - 1:
            yield title, body


class Docstring(NamedTuple):
    """An object's own name (the last part of it; "" for a module) and its docstring, without indentation."""

    name: str
    text: str


def docstrings(source: str) -> Iterator[Docstring]:
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
    """The same of modules, classes and functions by a full parse, whatever quotes they use."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield Docstring(getattr(node, "name", ""), text)


def _build(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    seen: set[bytes] = set()
    digest = hashlib.sha256()
    unread: list[str] = []
    with PairWriter(folder) as writer:
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
                    writer.add(title, body)
    return {"digest": digest.hexdigest()[:32], "files": len(files), "unread": unread, "pairs": len(seen)}


def _read_source(file: Path) -> str | None:
    """The text of a module in the encoding that it declares; None where it is not text (test data of a parser)."""
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def _split_title(text: str) -> tuple[str, str]:
    parts = _PARAGRAPH.split(text.strip(), maxsplit=1)
    if len(parts) == 2 and _SIGNATURE.fullmatch(parts[0].strip()):  # as documented in C: "abs(x) -> Tensor"
        parts = _PARAGRAPH.split(parts[1].strip(), maxsplit=1)
    if len(parts) == 1:
        parts = _SENTENCE.split(parts[0], maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")


def _strip_strings(text: str) -> str:
    """``text`` without strings, comments and the white space around."""
    return _LEXEME.sub("", text).strip()


def _is_header(text: str) -> bool:
    """Whether ``text``, which begins with def or class, is nothing but that header."""
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
            warnings.simplefilter("ignore")  # \d in someone else's docstring
            return str(ast.literal_eval(literal))
    except (ValueError, SyntaxError):
        return None

"""``docs``: real title-body pairs from the docstrings that are already on this machine.

The source of the standard library, NumPy, SciPy and torch is parsed, never imported. The first paragraph of a
docstring is the title and the rest the body (of a single paragraph: the first sentence and the rest). The object's
own name is taken out of the body, so that the two cannot be matched by name alone, and CamelCase and snake_case
are split into words. What is found depends on the versions installed, so the facts carry a hash of the pairs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import sysconfig
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from negwise.datasets.cache import VERSION, cached
from negwise.datasets.docstrings import docstrings
from negwise.datasets.read_pairs import PairWriter

PACKAGES = ("numpy", "scipy", "torch")
SKIPPED = {"site-packages", "__pycache__"}
FEWEST_WORDS = 3

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+")
_UNDERLINE = re.compile(r"^\s*[-=~^*]{3,}\s*$", re.MULTILINE)
_SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)(\s*->.*)?", re.DOTALL)
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.:])\s+")


def read_docs(cache: Path, roots: Sequence[Path] | None = None) -> tuple[Path, dict[str, Any]]:
    """The cached tables of the pairs under ``roots``, and facts: ``digest`` (of the pairs), ``files``, ``unread``."""
    places = source_roots() if roots is None else roots
    found = [entry for root in places for entry in source_files(root)]
    stamps = [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in found]
    key = hashlib.sha256(json.dumps([VERSION, "docs", stamps]).encode()).hexdigest()[:32]
    return cached(key, cache, lambda folder: _build([Path(entry.path) for entry in found], folder))


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
            if entry.name not in SKIPPED:
                yield from source_files(entry.path)
        elif entry.name.endswith(".py") and entry.is_file():
            yield entry


def _build(files: Sequence[Path], folder: Path) -> dict[str, Any]:
    seen: set[bytes] = set()
    digest = hashlib.sha256()
    unread: list[str] = []
    with PairWriter(folder) as writer:
        for file in files:
            source = _source(file)
            if source is None:
                unread.append(str(file))
                continue
            for title, body in pairs(source):
                name = hashlib.blake2b(f"{title}\0{body}".encode(), digest_size=16).digest()
                if name not in seen:
                    seen.add(name)
                    digest.update(name)
                    writer.add(title, body)
    return {"digest": digest.hexdigest()[:32], "files": len(files), "unread": unread, "pairs": len(seen)}


def _source(file: Path) -> str | None:
    """The text of a module in the encoding that it declares; None where it is not text (test data of a parser)."""
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def pairs(source: str) -> Iterator[tuple[str, str]]:
    """(title, body) of each docstring of a module that has both, of at least `FEWEST_WORDS` words each."""
    for name, text in docstrings(source):
        title, body = _cut(_UNDERLINE.sub("", text))
        if name:
            body = re.sub(rf"\b{re.escape(name)}\b", " ", body)
        title, body = (" ".join(_HUMP.sub(" ", side).split()) for side in (title, body))
        if min(title.count(" "), body.count(" ")) >= FEWEST_WORDS - 1:
            yield title, body


def _cut(text: str) -> tuple[str, str]:
    parts = _PARAGRAPH.split(text.strip(), maxsplit=1)
    if len(parts) == 2 and _SIGNATURE.fullmatch(parts[0].strip()):  # as documented in C: "abs(x) -> Tensor"
        parts = _PARAGRAPH.split(parts[1].strip(), maxsplit=1)
    if len(parts) == 1:
        parts = _SENTENCE.split(parts[0], maxsplit=1)
    return (parts[0], parts[1]) if len(parts) == 2 else ("", "")

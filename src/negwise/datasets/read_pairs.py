"""Reads text pairs: left, right and optional negatives; also ``{"query", "pos", "neg"}`` with lists.

Tables: ``pairs`` with both texts, their words as row numbers of ``words``, and ``negatives`` as row numbers of
``texts``, which holds each distinct negative once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from negwise.datasets.formats import NEGATIVE, DetectedFormat, choose_columns
from negwise.datasets.read_rows import is_unicode, read_rows
from negwise.datasets.table_cache import IdMap, TableWriter
from negwise.datasets.text_input import BadRows
from negwise.errors import quote
from negwise.words import has_words, split_words

PAIRS = {"left": "string", "right": "string", "left_words": "ints", "right_words": "ints", "negatives": "ints"}
TEXTS = {"text": "string", "words": "ints"}


def read_pairs(detected: DetectedFormat, folder: Path, bad_rows: BadRows, columns: Mapping[str, str]) -> int:
    """Write the tables. Returns the number of good rows."""
    file = detected.files[0]
    chosen = choose_columns(file, "pairs", detected.names, columns)
    good = 0
    with PairWriter(folder) as writer:
        for where, cells in read_rows(detected, bad_rows, chosen):
            left, rights = cells["left"], _texts(cells["right"])
            given = [cell for role, cell in cells.items() if role == "negatives" or role.startswith(NEGATIVE)]
            wrong = next((cell for cell in given if _texts(cell) is None), None)
            if not isinstance(left, str) or not has_words(left):
                bad_rows.add_row(file, where, f"{chosen['left']} is {quote(left)}, expected text with words")
            elif rights is None or not rights:
                bad_rows.add_row(file, where, f"{chosen['right']} is {quote(cells['right'])}, expected text with words")
            elif wrong is not None:
                came = quote(wrong)
                bad_rows.add_row(
                    file, where, f"negatives are {came}, expected text with words, or a list of such texts"
                )
            else:
                good += 1
                negatives = [text for cell in given for text in _texts(cell) or ()]
                for right in rights:
                    writer.add(left, right, negatives)
    return good


class PairWriter:
    """Writes the tables of text pairs, for every source of pairs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._words = IdMap()
        self._pairs = TableWriter(folder, "pairs", PAIRS)
        self._texts = TableWriter(folder, "texts", TEXTS)
        self._known: dict[bytes, int] = {}

    def __enter__(self) -> PairWriter:
        return self

    def __exit__(self, *error: Any) -> None:
        self._pairs.__exit__(*error)
        self._texts.__exit__(*error)
        if error[0] is None:
            self._words.write(self._folder, "words")

    def add(self, left: str, right: str, negatives: Iterable[str] = ()) -> None:
        given = [self._text(text) for text in negatives]
        self._pairs.add(left, right, self._numbers(left), self._numbers(right), given)

    def _numbers(self, text: str) -> list[int]:
        return [self._words(word) for word in split_words(text)]

    def _text(self, text: str) -> int:
        # Keep a hash of 16 bytes instead of the text, so that memory does not grow with its length.
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        if key not in self._known:
            self._known[key] = len(self._known)
            self._texts.add(text, self._numbers(text))
        return self._known[key]


def _texts(cell: object) -> list[str] | None:
    """The texts of a cell: one text, a list, or a JSON list. None if it is none of these, or a text has no words."""
    if cell is None or cell == "":
        return []
    if isinstance(cell, str) and cell.lstrip().startswith('["'):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    found = [cell] if isinstance(cell, str) else cell
    if not isinstance(found, list) or not all(isinstance(text, str) and has_words(text) for text in found):
        return None
    if not all(is_unicode(text) for text in found):
        return None
    return found

"""Cells that hold texts: one text, a list of texts, or a JSON list of texts. N cells, T texts."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from negwise.datasets.json_lines import is_unicode
from negwise.datasets.ragged import Ints, Ragged, offsets_of
from negwise.datasets.row_blocks import Wrong, cell
from negwise.datasets.word_lists import Words, words_of
from negwise.errors import quote, require

JSON_LIST = '["'
"""What a cell begins with that is a JSON list of texts."""


class TextCells(NamedTuple):
    """``texts`` (T,), an Arrow array; ``lists``: N lists of row numbers of it; ``words`` of the texts.

    ``unreadable`` are cells that hold something else.
    """

    texts: Any
    lists: Ragged
    words: Words
    unreadable: Ints

    def check(self, column: Any, message: str, wrong: Wrong, *, may_be_empty: bool) -> None:
        """Cells that are unreadable, or have a text without words, get ``message`` with the cell in ``wrong``."""
        empty = np.zeros(0, np.int64) if may_be_empty else np.flatnonzero(self.lists.lengths == 0)
        wordless = self.lists.rows[self.words.lengths[self.lists.ids] == 0]
        for row in np.unique(np.concatenate((self.unreadable, empty, wordless))).tolist():
            wrong.setdefault(row, message.format(quote(cell(column, row))))


def single_texts(column: Any) -> TextCells:
    """Each cell as one text, whatever it looks like."""
    arrow = require("pyarrow", extra="train")
    if isinstance(column, list):
        unreadable = np.flatnonzero([not isinstance(one, str) or not is_unicode(one) for one in column])
        bad = set(unreadable.tolist())
        texts = arrow.array(["" if at in bad else one for at, one in enumerate(column)], arrow.string())
    else:
        texts = as_text(column)
        if texts is None:
            texts = arrow.array([""] * len(column), arrow.string())
            unreadable = np.arange(len(column))
        else:
            unreadable = np.flatnonzero(texts.is_null().to_numpy(zero_copy_only=False))
    everything = Ragged(np.arange(len(column) + 1), np.arange(len(column)))
    return TextCells(texts, everything, words_of(texts), unreadable)


def text_lists(column: Any) -> TextCells:
    """Each cell as a list of texts; nothing and an empty text are empty lists."""
    arrow = require("pyarrow", extra="train")
    found = None if isinstance(column, list) else _by_arrow(arrow, column)
    if found is None:
        found = _in_python(arrow, column if isinstance(column, list) else column.to_pylist())
    texts, lengths, unreadable = found
    return TextCells(texts, Ragged(offsets_of(lengths), np.arange(len(texts))), words_of(texts), unreadable)


def as_text(column: Any) -> Any:
    """An Arrow column as texts; None if it holds something else."""
    arrow = require("pyarrow", extra="train")
    types, kind = arrow.types, column.type
    if types.is_dictionary(kind):
        values = as_text(column.dictionary)
        return None if values is None else values.take(column.indices)
    if types.is_null(kind) or types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return column.cast(arrow.string())
    if types.is_binary(kind) or types.is_large_binary(kind):
        try:
            return column.cast(arrow.string())
        except arrow.ArrowInvalid:
            return None
    return None


Found = tuple[Any, Ints, Ints]
"""Texts (T,), how many of them each cell has (N,), and which cells are unreadable."""


def _by_arrow(arrow: Any, column: Any) -> Found | None:
    """None if some cell has to be looked at in Python."""
    compute = require("pyarrow.compute", extra="train")
    types, kind = arrow.types, column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        texts = as_text(column.flatten())
        if texts is None or texts.null_count:
            return None
        lengths = column.value_lengths() if not types.is_fixed_size_list(kind) else None
        if lengths is None:
            return None
        return texts, lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), np.zeros(0, np.int64)
    texts = as_text(column)
    if texts is None:
        return None
    texts = texts.fill_null("")
    if compute.any(compute.match_substring(texts, JSON_LIST)).as_py():
        return None
    filled = compute.greater(compute.binary_length(texts), 0)
    return texts.filter(filled), filled.to_numpy(zero_copy_only=False).astype(np.int64), np.zeros(0, np.int64)


def _in_python(arrow: Any, cells: list[Any]) -> Found:
    made = [_texts(one) for one in cells]
    lengths = np.array([len(one or ()) for one in made], np.int64)
    texts = arrow.array([text for one in made for text in one or ()], arrow.string())
    return texts, lengths, np.flatnonzero([one is None for one in made])


def _texts(cell: object) -> list[str] | None:
    """The texts of a cell: one text, a list, or a JSON list. None if it is none of these."""
    if cell is None or cell == "":
        return []
    if isinstance(cell, bytes):
        try:
            cell = cell.decode()
        except UnicodeDecodeError:
            return None
    if isinstance(cell, str) and cell.lstrip().startswith(JSON_LIST):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    found = [cell] if isinstance(cell, str) else cell
    if not isinstance(found, list) or not all(isinstance(text, str) and is_unicode(text) for text in found):
        return None
    return found

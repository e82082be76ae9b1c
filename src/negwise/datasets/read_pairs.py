"""Reads text pairs: left, right and optional negatives; also ``{"query", "pos", "neg"}`` with lists.

Tables: ``pairs`` with both texts, their words as row numbers of ``words``, and ``negatives`` as row numbers of
``texts``, which holds each distinct negative once. N rows of a block, P pairs, Q texts that are new negatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from negwise.datasets.bad_rows import BadRows
from negwise.datasets.id_columns import IdMap
from negwise.datasets.ragged import Ints, Ragged, offsets_of
from negwise.datasets.row_blocks import RowBlock, Wrong
from negwise.datasets.table_cache import TableWriter
from negwise.datasets.table_columns import NEGATIVE
from negwise.datasets.text_cells import TextCells, single_texts, text_lists
from negwise.datasets.word_lists import Words
from negwise.errors import require

PAIRS = {"left": "string", "right": "string", "left_words": "ints", "right_words": "ints", "negatives": "ints"}
TEXTS = {"text": "string", "words": "ints"}
EXPECTED = "expected text with words"


def read_pairs(blocks: Iterable[RowBlock], folder: Path, bad_rows: BadRows, chosen: Mapping[str, str]) -> int:
    """Write the tables. Returns the number of good rows."""
    good_rows = 0
    with PairWriter(folder) as writer:
        for block in blocks:
            wrong, columns = Wrong(), block.columns
            left, right = single_texts(columns["left"]), text_lists(columns["right"])
            left.check(columns["left"], f"{chosen['left']} is {{}}, {EXPECTED}", wrong, may_be_empty=False)
            right.check(columns["right"], f"{chosen['right']} is {{}}, {EXPECTED}", wrong, may_be_empty=False)
            given = []
            for role, column in columns.items():
                if role == "negatives" or role.startswith(NEGATIVE):
                    given.append(text_lists(column))
                    message = f"negatives are {{}}, {EXPECTED}, or a list of such texts"
                    given[-1].check(column, message, wrong, may_be_empty=True)
            good = block.report(wrong, bad_rows)
            rows = np.arange(len(block)) if good is None else np.flatnonzero(good)
            good_rows += len(rows)
            writer.write(left, right, given, rows)
    return good_rows


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

    def write(self, left: TextCells, right: TextCells, given: Sequence[TextCells], rows: Ints) -> None:
        """The pairs of ``rows``: each row's left text with each of its right texts, and its negatives."""
        arrow = require("pyarrow", extra="train")
        rights = right.lists.take(rows)  # of each row; a pair is one of them
        row_of = rights.rows
        pool, negatives = _side_by_side(given, rows)
        numbers, new, of_row = self._number_texts(pool.texts, negatives)
        # Words are numbered in the order of pairs: the new negatives of a row, then left and right of each pair.
        n_pairs = len(row_of)
        order = np.argsort(
            np.concatenate((rights.offsets[of_row] * 3, np.arange(n_pairs) * 3 + 1, np.arange(n_pairs) * 3 + 2)),
            kind="stable",
        )
        words = _chained(pool.words.take(new), left.words.take(rows[row_of]), right.words.take(rights.ids)).take(order)
        listed = Ragged(
            offsets_of(words.lengths), self._words.numbers(words.words.dictionary_encode()).astype(np.int64)
        )
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        if len(new):
            self._texts.write({"text": pool.texts.take(arrow.array(new)), "words": listed.take(back[: len(new)])})
        self._pairs.write(
            {
                "left": left.texts.take(arrow.array(rows[row_of])),
                "right": right.texts.take(arrow.array(rights.ids)),
                "left_words": listed.take(back[len(new) : len(new) + n_pairs]),
                "right_words": listed.take(back[len(new) + n_pairs :]),
                "negatives": Ragged(negatives.offsets, numbers).take(row_of),
            }
        )

    def _number_texts(self, texts: Any, lists: Ragged) -> tuple[Ints, Ints, Ints]:
        """Numbers of the texts in ``lists``; the first place of each new one in ``texts`` (Q,), and its row (Q,)."""
        known, numbers, new, rows = self._known, [], [], []
        listed = texts.to_pylist() if len(lists.ids) else []
        for row, at in zip(lists.rows.tolist(), lists.ids.tolist(), strict=True):
            # Keep a hash of 16 bytes instead of the text, so that memory does not grow with its length.
            key = hashlib.blake2b(listed[at].encode(), digest_size=16).digest()
            if key not in known:
                known[key] = len(known)
                new.append(at)
                rows.append(row)
            numbers.append(known[key])
        return tuple(np.array(values, np.int64) for values in (numbers, new, rows))  # type: ignore[return-value]


def _side_by_side(given: Sequence[TextCells], rows: Ints) -> tuple[TextCells, Ragged]:
    """All given negatives as one: their texts, and for each of ``rows`` the lists of all columns in turn."""
    if not given:
        nothing = text_lists([])
        return nothing, Ragged(np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int64))
    arrow = require("pyarrow", extra="train")
    shifts = np.cumsum([0, *(len(cells.texts) for cells in given)])
    lists = [cells.lists.take(rows) for cells in given]
    owner = np.concatenate([one.rows for one in lists])
    ids = np.concatenate([one.ids + shift for one, shift in zip(lists, shifts[:-1], strict=True)])
    order = np.argsort(owner, kind="stable")
    joined = Ragged(offsets_of(np.bincount(owner, minlength=len(rows))), ids[order])
    texts = arrow.concat_arrays([cells.texts for cells in given])
    return TextCells(texts, joined, _chained(*(cells.words for cells in given)), np.zeros(0, np.int64)), joined


def _chained(*parts: Words) -> Words:
    arrow = require("pyarrow", extra="train")
    return Words(np.concatenate([part.lengths for part in parts]), arrow.concat_arrays([part.words for part in parts]))

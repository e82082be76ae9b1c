"""Cuts a column of texts into words, as `negwise.words.split_words` does, all at once. N texts, T words, B bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, flat_indices, offsets_of
from negwise.errors import require
from negwise.words import split_words

_APOSTROPHE = ord("'")
_SEPARATOR = 0
# Letters in lower case, digits and apostrophes as they are; everything else separates.
_TABLE = np.zeros(256, np.uint8)
for _code in range(128):
    if chr(_code).isalnum() or _code == _APOSTROPHE:
        _TABLE[_code] = ord(chr(_code).lower())


class Words(NamedTuple):
    """``lengths`` (N,): how many words each text has; ``words`` (T,): an Arrow array, text after text."""

    lengths: Ints
    words: Any

    def take(self, rows: Ints) -> Words:
        """The words of the texts ``rows``, in that order."""
        offsets = offsets_of(self.lengths[rows])
        places = flat_indices(offsets_of(self.lengths)[:-1][rows], offsets)
        return Words(self.lengths[rows], self.words.take(require("pyarrow", extra="train").array(places)))


def words_of(texts: Any) -> Words:
    """The words of an Arrow array of texts. Nulls have none."""
    arrow = require("pyarrow", extra="train")
    texts = texts.cast(arrow.string()).fill_null("")
    data, offsets = _bytes_of(texts)
    wide = np.concatenate(([0], np.cumsum(data > 127)))
    foreign = wide[offsets[1:]] > wide[offsets[:-1]]
    if not foreign.any():
        return _ascii_words(arrow, data, offsets)
    plain = _ascii_words(arrow, *_bytes_of(texts.filter(arrow.array(~foreign))))
    listed = [split_words(text) for text in texts.filter(arrow.array(foreign)).to_pylist()]
    others = Words(
        np.array([len(words) for words in listed], np.int64),
        arrow.array([word for words in listed for word in words], arrow.string()),
    )
    both = Words(np.concatenate((plain.lengths, others.lengths)), arrow.concat_arrays([plain.words, others.words]))
    place = np.empty(len(foreign), np.int64)  # where each text is in ``both``
    place[~foreign] = np.arange(len(plain.lengths))
    place[foreign] = np.arange(len(plain.lengths), len(foreign))
    return both.take(place)


def split_at_spaces(texts: Any) -> Words:
    """``str.split()`` of ASCII texts that have no white space but spaces."""
    arrow = require("pyarrow", extra="train")
    data, offsets = _bytes_of(texts)
    return _runs(arrow, data, data != ord(" "), offsets)


def _ascii_words(arrow: Any, data: NDArray[np.uint8], offsets: Ints) -> Words:
    data = _TABLE[data]
    inside = data != _SEPARATOR
    marks = np.flatnonzero(data == _APOSTROPHE)
    if len(marks):
        # An apostrophe is part of a word between two letters or digits of the same text.
        letter = np.append(inside & (data != _APOSTROPHE), False)
        begins = np.zeros(len(data) + 1, bool)
        begins[offsets] = True
        inside[marks] = letter[marks - 1] & ~begins[marks] & letter[marks + 1] & ~begins[marks + 1]
    return _runs(arrow, data, inside, offsets)


def _runs(arrow: Any, data: NDArray[np.uint8], inside: NDArray[np.bool_], offsets: Ints) -> Words:
    """The runs of bytes that are ``inside`` (B,), broken where a text ends."""
    begins = np.zeros(len(data) + 1, bool)
    begins[offsets] = True
    before = np.append(False, inside[:-1])[: len(data)]
    first = inside & (~before | begins[:-1])
    kept = np.concatenate(([0], np.cumsum(inside)))
    starts = kept[np.flatnonzero(first)]  # the place of each word among the bytes that are kept
    total = int(kept[-1])
    places = np.append(starts, total).astype(np.int32)
    words = arrow.StringArray.from_buffers(
        len(starts), arrow.py_buffer(places), arrow.py_buffer(np.ascontiguousarray(data[inside]))
    )
    count = np.concatenate(([0], np.cumsum(first)))
    return Words(count[offsets[1:]] - count[offsets[:-1]], words)


def _bytes_of(texts: Any) -> tuple[NDArray[np.uint8], Ints]:
    """The UTF-8 bytes of all texts (B,), and where each begins (N + 1,)."""
    _, places, data = texts.buffers()
    if not len(texts):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    offsets = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    whole = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return whole[offsets[0] : offsets[-1]], offsets - offsets[0]

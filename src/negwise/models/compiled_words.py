"""Token ids of ASCII texts as a numba loop: the words of `negwise.words.split_words`, looked up in a hash table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

OFFSET, PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
"""Of the hash function FNV-1a."""
APOSTROPHE = np.uint8(ord("'"))
_LOWER = np.zeros(256, np.uint8)
"""Lower-case code of each letter and digit, 0 of what is in no word."""
for _code in range(128):
    if chr(_code).isalnum():
        _LOWER[_code] = ord(chr(_code).lower())


@dataclass(frozen=True, eq=False)
class WordTable:
    """ASCII words and their numbers: ``slots`` (a power of two) has the place of a word or -1, by its hash."""

    slots: NDArray[np.int64]
    letters: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    numbers: NDArray[np.int32]

    @classmethod
    def of(cls, numbers: Mapping[str, int]) -> WordTable:
        """The table of word -> number. Other words than ASCII ones are in no ASCII text and left out."""
        words = [word for word in numbers if word.isascii()]
        letters, offsets = _joined(words)
        slots = np.full(1 << (2 * len(words) + 1).bit_length(), -1, np.int64)
        _fill(slots, letters, offsets)
        return cls(slots, letters, offsets, np.array([numbers[word] for word in words], np.int32))

    def encode(self, texts: Sequence[str], length: int, unknown: int) -> NDArray[np.int32]:
        """ASCII texts as (N, L) token ids, cut or padded with 0."""
        letters, offsets = _joined(texts)
        tokens = np.zeros((len(texts), length), np.int32)
        _look_up(tokens, letters, offsets, unknown, self.slots, self.letters, self.offsets, self.numbers)
        return tokens


def _joined(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The characters of all texts, and where each begins and the last one ends."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=offsets[1:])
    return np.frombuffer("".join(texts).encode("ascii"), np.uint8), offsets


@njit(cache=True, nogil=True)
def _fill(slots, letters, offsets):  # type: ignore[no-untyped-def]
    last = np.uint64(len(slots) - 1)
    for word in range(len(offsets) - 1):
        code = OFFSET
        for at in range(offsets[word], offsets[word + 1]):
            code = (code ^ np.uint64(letters[at])) * PRIME
        slot = code & last
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = word


@njit(cache=True, nogil=True)
def _look_up(tokens, letters, offsets, unknown, slots, word_letters, word_offsets, numbers):  # type: ignore[no-untyped-def]
    """Set ``tokens`` (N, L), initially 0, to the numbers of the first L words of each text."""
    last = np.uint64(len(slots) - 1)
    for row in range(tokens.shape[0]):
        at, end, place = offsets[row], offsets[row + 1], 0
        while at < end and place < tokens.shape[1]:
            if _LOWER[letters[at]] == 0:
                at += 1
                continue
            start, code = at, OFFSET
            while at < end:
                letter = _LOWER[letters[at]]
                if letter == 0:  # an apostrophe between letters or digits is part of the word
                    inside = letters[at] == APOSTROPHE and at + 1 < end and _LOWER[letters[at + 1]] != 0
                    if not inside:
                        break
                    letter = APOSTROPHE
                code = (code ^ np.uint64(letter)) * PRIME
                at += 1
            tokens[row, place] = unknown
            slot = code & last
            while slots[slot] >= 0:
                word = slots[slot]
                first = word_offsets[word]
                same = word_offsets[word + 1] - first == at - start
                i = 0
                while same and i < at - start:
                    letter = letters[start + i]
                    same = word_letters[first + i] == (letter if letter == APOSTROPHE else _LOWER[letter])
                    i += 1
                if same:
                    tokens[row, place] = numbers[word]
                    break
                slot = (slot + np.uint64(1)) & last
            place += 1

"""Splitting texts into words, and a vocabulary of the training split.

The cache holds texts as word ids of their file, so that vocabularies and token tables are made without splitting texts
again. L positions, N items.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ragged
from negwise.errors import InputError

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def split_words(text: str) -> list[str]:
    """Words of a text: runs of letters and digits in lower case, with apostrophes inside a word.

    >>> split_words("Bob's 2 dogs_ran.")
    ["bob's", '2', 'dogs', 'ran']
    """
    return _WORD.findall(text.lower())


def has_words(text: str) -> bool:
    """Whether ``text`` has at least one word."""
    return _WORD.search(text) is not None


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """``words[0]`` is padding, ``words[1]`` the unknown word, the others by decreasing count in training."""

    words: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str, length: int) -> NDArray[np.int32]:
        """One text as (L,) token ids, cut or padded to ``length``."""
        number = self._numbers()
        found = [number.get(word, UNKNOWN) for word in split_words(text)[:length]]
        return np.array(found + [PADDING] * (length - len(found)), np.int32)

    def _numbers(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self.words) if at > UNKNOWN}

    @classmethod
    def of(
        cls, fields: Sequence[Ragged], file_words: Sequence[str], min_count: int = 1, most: int | None = None
    ) -> Vocabulary:
        """From word ids of the training texts: words that occur ``min_count`` times or more, at most ``most`` words."""
        if min_count < 1 or (most is not None and most < 1):
            raise InputError(f"min_count={min_count}, most={most}: expected 1 or more")
        counts = sum(
            (np.bincount(field.ids, minlength=len(file_words)) for field in fields), np.zeros(len(file_words), int)
        )
        order = np.argsort(-counts, kind="stable")
        kept = order[counts[order] >= min_count][:most]
        return cls((*SPECIAL, *(file_words[at] for at in kept)))

    def table(self, texts: Ragged, file_words: Sequence[str], length: int) -> NDArray[np.int32]:
        """(N, L) token ids of texts given as word ids, cut or padded to ``length``."""
        if length < 1:
            raise InputError(f"length={length}, expected 1 or more")
        number = self._numbers()
        mine = np.array([number.get(word, UNKNOWN) for word in file_words] or [UNKNOWN], np.int32)
        place = np.arange(length)
        inside = place < texts.lengths[:, None]
        at = np.where(inside, texts.offsets[:-1, None] + place, 0)
        tokens = mine[texts.ids[at]] if len(texts.ids) else np.zeros(at.shape, np.int32)
        return np.where(inside, tokens, PADDING).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Text:
    """Inputs of text models: ``tokens[field]`` (N, L) int32, ``categories[field]`` (N,) int32 with 0 for none."""

    vocabulary: Vocabulary
    tokens: Mapping[str, NDArray[np.int32]]
    categories: Mapping[str, NDArray[np.int32]]
    category_names: Mapping[str, tuple[str, ...]]


def number_categories(names: Sequence[str]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """(N,) category ids from 1, by decreasing count, 0 for none; and the name of each id."""
    kept = ("", *(name for name, _ in Counter(name for name in names if name).most_common()))
    number = {name: at for at, name in enumerate(kept)}
    return np.array([number[name] for name in names], np.int32), kept

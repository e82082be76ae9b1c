"""Texts of a task: as they were written, and as word ids of their file, so that no text is split into words twice.

N texts. Token ids are made by the model's tokenizer, from either form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, Ragged


@dataclass(frozen=True, eq=False)
class Texts:
    """N texts. ``strings`` is an Arrow column, or a list; ``words`` are ids into ``word_list``, a list a text."""

    strings: Any
    words: Ragged
    word_list: Sequence[str]

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, row: int) -> str:
        """The text of ``row``, as it was written."""
        return str(self.strings[int(row)])

    def take(self, rows: Ints) -> Texts:
        """The texts of ``rows``, in that order."""
        return Texts(_Chosen(self.strings, rows), self.words.take(rows), self.word_list)


@dataclass(frozen=True, eq=False)
class TaskTexts:
    """What text models read of each item: ``fields`` "title" and "body", and ``categories`` (N,) with 0 for none.

    ``training_rows`` are the items whose words training sees: a vocabulary counts them and no others. ``vocabulary`` is
    set where the words are known beforehand.
    """

    fields: Mapping[str, Texts]
    training_rows: Ints
    categories: Mapping[str, NDArray[np.int32]]
    category_names: Mapping[str, tuple[str, ...]]
    vocabulary: tuple[str, ...] | None = None


def concatenated(first: Texts, second: Texts) -> Texts:
    """The texts of both, of one word list."""
    strings = _Chained(first.strings, second.strings)
    return Texts(strings, first.words.followed_by(second.words), first.word_list)


def number_categories(names: Sequence[str]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """(N,) category ids from 1, by decreasing count, 0 for none; and the name of each id."""
    kept = ("", *(name for name, _ in Counter(name for name in names if name).most_common()))
    number = {name: at for at, name in enumerate(kept)}
    return np.array([number[name] for name in names], np.int32), kept


@dataclass(frozen=True)
class _Chained:
    """Two sequences as one, without copying either."""

    first: Any
    second: Any

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def __getitem__(self, at: int) -> Any:
        return self.first[at] if at < len(self.first) else self.second[at - len(self.first)]


@dataclass(frozen=True)
class _Chosen:
    """Some rows of a sequence, without copying it."""

    strings: Any
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int) -> Any:
        return self.strings[int(self.rows[at])]

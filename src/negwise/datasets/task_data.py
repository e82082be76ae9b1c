"""A data set made ready for training: examples by number, the lists that samplers and rankings need, and texts.

B rows of a batch, H positions of a history, N texts. Token ids are made by the model's tokenizer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, Ragged
from negwise.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from negwise.protocols import Query


class Batch(NamedTuple):
    """``positives`` and ``groups`` are int64 (B,). ``groups`` index the rows of a task's lists."""

    query: Query
    positives: Tensor
    groups: Tensor


@dataclass(frozen=True, eq=False)
class Examples:
    """Positives, each with its history ``items[start:end]``, of which a query holds the last H.

    ``start``, ``end``, ``users``, ``positives``, ``groups`` are (N,), int64 or int32. ``candidates`` is the range of
    candidate ids of this split.
    """

    items: Ints
    start: Ints
    end: Ints
    users: Ints
    positives: Ints
    groups: Ints
    max_length: int
    candidates: tuple[int, int]

    def __len__(self) -> int:
        return len(self.positives)

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> Batch:
        """The examples at ``indices``: one query per row, H = ``max_length`` wide, items first, padding last."""
        import torch

        chosen = np.asarray(indices, np.int64)
        items, mask = padded_windows(self.items, self.start[chosen], self.end[chosen], self.max_length)
        return Batch(
            _query(items, mask, self.users[chosen]),
            torch.from_numpy(self.positives[chosen].astype(np.int64)),
            torch.from_numpy(self.groups[chosen].astype(np.int64)),
        )


@dataclass(frozen=True, eq=False)
class SequenceWindows:
    """Whole training sequences, for models that predict items within them: row r is ``items[start[r]:end[r]]``.

    A row has at most ``max_length`` items. Its query has no ``positions``; ``query.users`` are the groups of the rows.
    """

    items: Ints
    start: Ints
    end: Ints
    users: Ints
    max_length: int

    def __len__(self) -> int:
        return len(self.start)

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> Query:
        chosen = np.asarray(indices, np.int64)
        items, mask = padded_windows(self.items, self.start[chosen], self.end[chosen], self.max_length)
        return _query(items, mask, self.users[chosen])


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


@dataclass(frozen=True, eq=False)
class TaskData:
    """A prepared data set: three splits over ``n_items`` candidates.

    Lists by group (an impression, a user or a left text): ``train_exclusions`` are ids that must not be negatives in
    training, ``eval_exclusions`` the same in evaluation, ``negatives`` given negatives (None: draw from the candidates
    of the split). Tasks with impressions have ``impressions``, all ids that were shown, and ``labels`` of
    ``impressions.ids``. Sequences have ``windows``. ``popularity`` (n_items,) counts training positives. ``histories``
    are all items of each user, in the order of time, whatever the split.
    """

    name: str
    n_items: int
    n_users: int
    train: Examples
    val: Examples
    test: Examples
    popularity: Ints
    train_exclusions: Ragged
    eval_exclusions: Ragged
    negatives: Ragged | None = None
    impressions: Ragged | None = None
    labels: NDArray[np.int8] | None = None
    windows: SequenceWindows | None = None
    histories: Ragged | None = None
    texts: TaskTexts | None = None
    split: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()


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


def padded_windows(items: Ints, start: Ints, end: Ints, max_length: int) -> tuple[Ints, NDArray[np.bool_]]:
    """The last ``max_length`` of ``items[start:end]`` for each row: (B, H) ids, 0 where the mask (B, H) is false."""
    length = np.minimum(end - start, max_length)
    place = np.arange(max_length)
    mask = place < length[:, None]
    at = np.where(mask, (end - length)[:, None] + place, 0)
    return (np.where(mask, items[at], 0).astype(np.int64, copy=False) if len(items) else at), mask


def _query(items: Ints, mask: NDArray[np.bool_], users: Ints) -> Query:
    import torch

    from negwise.protocols import Query

    return Query(torch.from_numpy(items), torch.from_numpy(mask), torch.from_numpy(users.astype(np.int64)))


def count_positives(train: Examples, n_items: int) -> Ints:
    return np.bincount(train.positives, minlength=n_items)


def check_splits(task: TaskData, path: str) -> TaskData:
    """Returns ``task``; raises if one of its splits is empty."""
    for name in ("train", "val", "test"):
        if len(getattr(task, name)) == 0:
            raise InputError(f"{path}: split={task.split!r} leaves no examples for {name}. Choose another split.")
    return task

"""What a training loop gets: examples by number, the lists that samplers and rankings need, and texts.

B rows of a batch, H places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, Ragged
from negwise.datasets.vocabulary import Text
from negwise.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from negwise.protocols import Query


class Batch(NamedTuple):
    """``positives`` and ``groups`` are int64 (B,); ``groups`` are the rows of a task's lists."""

    query: Query
    positives: Tensor
    groups: Tensor


@dataclass(frozen=True, eq=False)
class Examples:
    """Positives, each with the items that stood before it: ``items[start:end]``, of which the last H are shown.

    ``start``, ``end``, ``users``, ``positives``, ``groups`` are (N,); ``candidates`` is the range of ids among which
    this split's positives are told apart.
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
        """The examples with these numbers: one query a row, H = ``max_length`` wide, items first, padding last."""
        import torch

        chosen = np.asarray(indices, np.int64)
        items, mask = padded_windows(self.items, self.start[chosen], self.end[chosen], self.max_length)
        return Batch(
            _query(items, mask, self.users[chosen]),
            torch.from_numpy(self.positives[chosen]),
            torch.from_numpy(self.groups[chosen]),
        )


@dataclass(frozen=True, eq=False)
class SequenceWindows:
    """Whole training sequences, for models that ask for places within them: row r is ``items[start[r]:end[r]]``.

    A row has at most ``max_length`` items, its query no ``positions``, and ``query.users`` are the rows' groups.
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
class TaskData:
    """A data set made ready: three splits over ``n_items`` candidates.

    Lists by group (an impression, a user, a document): ``train_exclusions`` has what is no negative of the group in
    training, ``eval_exclusions`` what is none in an evaluation, ``negatives`` what was given as one (None: draw from
    the candidates of the split). Impressions also have ``impressions``, all that was shown, and ``labels`` beside
    ``impressions.ids``; sequences have ``windows``. ``popularity`` (n_items,) counts training positives.
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
    text: Text | None = None
    split: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()

    def content(self) -> dict[str, Any]:
        """What models are built from, by the names that they use: token tables, categories and counts."""
        found: dict[str, Any] = {"n_items": self.n_items, "n_users": self.n_users}
        if self.text is not None:
            title, body = ("left", "right") if self.name == "pairs" else ("title", "abstract")
            found |= {title: self.text.tokens["title"], body: self.text.tokens["body"], **self.text.categories}
            found["n_words"] = len(self.text.vocabulary)
        return found


def padded_windows(items: Ints, start: Ints, end: Ints, max_length: int) -> tuple[Ints, NDArray[np.bool_]]:
    """The last ``max_length`` of ``items[start:end]``, row by row: (B, H) ids, 0 where the mask (B, H) is false."""
    length = np.minimum(end - start, max_length)
    place = np.arange(max_length)
    mask = place < length[:, None]
    at = np.where(mask, (end - length)[:, None] + place, 0)
    return (np.where(mask, items[at], 0) if len(items) else at), mask


def _query(items: Ints, mask: NDArray[np.bool_], users: Ints) -> Query:
    import torch

    from negwise.protocols import Query

    return Query(torch.from_numpy(items), torch.from_numpy(mask), torch.from_numpy(users))


def count_positives(train: Examples, n_items: int) -> Ints:
    return np.bincount(train.positives, minlength=n_items)


def check_splits(task: TaskData, path: str) -> TaskData:
    """A task with an empty split serves nobody: say which one, and what to do."""
    for name in ("train", "val", "test"):
        if len(getattr(task, name)) == 0:
            raise InputError(f"{path}: split={task.split!r} leaves no example for {name}. Choose another split.")
    return task

"""Sequences: the items of each user in the order of time. The positive is the next item."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.progress_parts import within
from negwise.datasets.ragged import Ints, Ragged, blocks_of_rows, narrow, offsets_of, stacked
from negwise.datasets.splits import (
    TEST,
    TRAIN,
    VAL,
    SplitLabels,
    SplitSizes,
    check_split_name,
    split_at_random,
    split_by_time,
)
from negwise.datasets.task_data import Examples, SequenceWindows, TaskData, check_splits
from negwise.errors import InputError
from negwise.stages import Progress

SEQUENCE_SPLITS = ("last", "user", "time")

BLOCK = 2**20
"""About as many items at a time."""
PARTS = (0.0, 0.4, 0.75, 0.85)
"""Where the lists of evaluation, of training and the windows end, as shares of the time of a split."""
CONTEXT_ONLY = 3
"""Label of items of held-out users that are only context: never positives, and not in training."""


@dataclass(frozen=True, eq=False)
class Sequences:
    """``items`` (N,) user after user in the order of time; ``times`` (N,), or None if only the order is known.

    ``disliked`` lists, for each user, items with label 0; None if the data has no such labels.
    """

    items: Ints
    offsets: Ints
    times: Ints | None
    n_items: int
    disliked: Ragged | None = None

    @property
    def n_users(self) -> int:
        return len(self.offsets) - 1

    @property
    def users(self) -> Ints:
        return np.repeat(narrow(np.arange(self.n_users), self.n_users), np.diff(self.offsets))


def sequences_from_rows(
    users: Ints,
    items: Ints,
    times: Ints | None,
    n_users: int,
    n_items: int,
    labels: NDArray[np.int8] | None = None,
    progress: Progress | None = None,
) -> Sequences:
    """Sequences from rows in any order. Rows of a user with equal times keep the order of the file."""
    disliked = None
    if labels is not None and not labels.all():
        disliked = Ragged.of_pairs(users[labels == 0], items[labels == 0], n_users)
        liked = labels == 1
        users, items, times = users[liked], items[liked], None if times is None else times[liked]
    offsets = offsets_of(np.bincount(users, minlength=n_users))
    order = np.argsort(users, kind="stable")
    if times is not None:
        for first, last in blocks_of_rows(offsets, BLOCK):
            rows = order[offsets[first] : offsets[last]]
            rows[:] = rows[np.lexsort((times[rows], users[rows]))]
            if progress is not None:
                progress(last / n_users)
    return Sequences(items[order], offsets, None if times is None else times[order], n_items, disliked)


def sequence_task(
    data: Sequences,
    split: str,
    shares: SplitSizes,
    max_length: int,
    seed: int,
    path: str,
    progress: Progress | None = None,
) -> TaskData:
    """A task of examples (previous items -> next item). By ``split``:

    ``last``: each user's last item is test, the one before it validation (users with fewer than 3 items are in training
    only). ``user``: users are held out, and their last item is the positive. ``time``: the last days are held out.
    """
    check_split_name(split, SEQUENCE_SPLITS, path, shares)
    split_of = _split_labels(data, split, shares, seed, path)
    notes = []
    short = int((np.diff(data.offsets) < 3).sum())
    if split == "last" and short:
        notes.append(f"{short} users with fewer than 3 items are in training only")
    alone = int((np.diff(data.offsets) == 1).sum())
    if split == "user" and alone:
        notes.append(f"{alone} users with a single item have no history and give no examples")
    data = replace(data, times=None)  # not needed any more, and as large as the items
    users, in_training = data.users, split_of == TRAIN
    # Lists before examples: sorting takes memory, which examples would take as well.
    eval_exclusions = _item_sets(data, None, within(progress, *PARTS[0:2]))
    train_exclusions = _item_sets(data, in_training, within(progress, *PARTS[1:3]))
    windows = _training_windows(data, users, in_training, max_length)
    if progress is not None:
        progress(PARTS[3])
    train, val, test = (_examples(data, users, split_of == which, max_length) for which in (TRAIN, VAL, TEST))
    task = TaskData(
        "sequences",
        data.n_items,
        data.n_users,
        train,
        val,
        test,
        np.bincount(data.items[in_training], minlength=data.n_items),
        train_exclusions=train_exclusions,
        eval_exclusions=eval_exclusions,
        negatives=data.disliked,
        windows=windows,
        histories=Ragged(data.offsets, data.items),
        split=split,
        notes=tuple(notes),
    )
    return check_splits(task, path)


def _item_sets(data: Sequences, chosen: NDArray[np.bool_] | None, progress: Progress | None) -> Ragged:
    """The ``chosen`` items of each user as a sorted set, some users at a time."""
    blocks = []
    for first, last in blocks_of_rows(data.offsets, BLOCK):
        rows = slice(int(data.offsets[first]), int(data.offsets[last]))
        users = np.repeat(np.arange(last - first), np.diff(data.offsets[first : last + 1]))
        items = data.items[rows]
        if chosen is not None:
            users, items = users[chosen[rows]], items[chosen[rows]]
        blocks.append(Ragged.of_pairs(users, items, last - first))
        if progress is not None:
            progress(last / data.n_users)
    return stacked(blocks)


def _split_labels(data: Sequences, split: str, shares: SplitSizes, seed: int, path: str) -> SplitLabels:
    if split == "time":
        if data.times is None:
            raise InputError(f"{path}: split='time' needs times, and the file has none. Type --split last.")
        return split_by_time(data.times, shares, path)
    split_of = np.full(len(data.items), TRAIN, np.int8)
    last, length = data.offsets[1:] - 1, np.diff(data.offsets)
    if split == "last":
        long = length >= 3
        split_of[last[long]], split_of[last[long] - 1] = TEST, VAL
        return split_of
    held = split_at_random(data.n_users, shares, seed, f"{path}: split='user' of {data.n_users} users")
    split_of[np.repeat(held != TRAIN, length)] = CONTEXT_ONLY
    has_history = length >= 2
    split_of[last[has_history]] = held[has_history]
    return split_of


def _examples(data: Sequences, users: Ints, in_split: NDArray[np.bool_], max_length: int) -> Examples:
    """The positions in ``in_split`` that have a history."""
    has_history = np.ones(len(users), bool)
    has_history[data.offsets[:-1][np.diff(data.offsets) > 0]] = False  # the first item of a user
    at = narrow(np.flatnonzero(in_split & has_history), len(users))
    owner = users[at]
    start = narrow(data.offsets, len(users) + 1)[owner]
    return Examples(data.items, start, at, owner, data.items[at], owner, max_length, (0, data.n_items))


def _training_windows(data: Sequences, users: Ints, in_training: NDArray[np.bool_], max_length: int) -> SequenceWindows:
    """Windows of ``max_length`` training items, cut from the end of each user's: in every split they come first."""
    length = np.bincount(users[in_training], minlength=data.n_users)
    counts = -(-length // max_length)
    owner = np.repeat(np.arange(data.n_users), counts)
    back = np.arange(len(owner)) - np.repeat(offsets_of(counts)[:-1], counts)
    first = data.offsets[:-1][owner]
    end = first + length[owner] - back * max_length
    return SequenceWindows(data.items, np.maximum(end - max_length, first), end, owner, max_length)

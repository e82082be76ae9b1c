"""Items in the order in which users took them: the next one is the positive."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.examples import Examples, Task, Windows, check_splits
from negwise.datasets.ragged import Ints, Ragged, offsets_of
from negwise.datasets.splits import TEST, TRAIN, VAL, Parts, Shares, at_random, by_time, check_choice
from negwise.errors import InputError

SPLITS = ("last", "user", "time")


@dataclass(frozen=True, eq=False)
class Sequences:
    """``items`` (N,) user after user in the order of time; ``times`` (N,) or None where only the order is known.

    ``disliked`` has, for each user, what was shown and not taken, where the data says.
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
        return np.repeat(np.arange(self.n_users), np.diff(self.offsets))


def sequences_of(
    users: Ints, items: Ints, times: Ints | None, n_users: int, n_items: int, labels: Ints | None = None
) -> Sequences:
    """From rows in any order; rows of one user at one time keep the order of the file."""
    disliked = None
    if labels is not None and not labels.all():
        disliked = Ragged.of_pairs(users[labels == 0], items[labels == 0], n_users)
        liked = labels == 1
        users, items, times = users[liked], items[liked], None if times is None else times[liked]
    order = np.argsort(users, kind="stable") if times is None else np.lexsort((times, users))
    offsets = offsets_of(np.bincount(users, minlength=n_users))
    return Sequences(items[order], offsets, None if times is None else times[order], n_items, disliked)


def sequence_task(data: Sequences, split: str, shares: Shares, places: int, seed: int, path: str) -> Task:
    """Examples are (the items before -> the next item). By ``split``:

    ``last``: each user's last item is test, the one before it validation (users with fewer than 3 stay in training);
    ``user``: users are held out, and their last item is the positive; ``time``: the last days are held out.
    """
    check_choice(split, SPLITS, path, shares)
    part = _parts(data, split, shares, seed, path)
    notes = []
    short = int((np.diff(data.offsets) < 3).sum())
    if split == "last" and short:
        notes.append(f"{short} users with fewer than 3 items are in training only")
    alone = int((np.diff(data.offsets) == 1).sum())
    if split == "user" and alone:
        notes.append(f"{alone} users with a single item have nothing before it, and are in no split as examples")
    users = data.users
    train, val, test = (_examples(data, users, part == which, places) for which in (TRAIN, VAL, TEST))
    taught = part == TRAIN
    task = Task(
        "sequences",
        data.n_items,
        data.n_users,
        train,
        val,
        test,
        np.bincount(data.items[taught], minlength=data.n_items),
        known=Ragged.of_pairs(users[taught], data.items[taught], data.n_users),
        seen=Ragged.of_pairs(users, data.items, data.n_users),
        negatives=data.disliked,
        windows=_windows(data, part, places),
        split=split,
        notes=tuple(notes),
    )
    return check_splits(task, path)


HELD_CONTEXT = 3
"""Items of held-out users that are only read: in no split as positives, and never taught."""


def _parts(data: Sequences, split: str, shares: Shares, seed: int, path: str) -> Parts:
    if split == "time":
        if data.times is None:
            raise InputError(f"{path}: split='time', but the file has no times. Type --split last.")
        return by_time(data.times, shares, path)
    part = np.full(len(data.items), TRAIN, np.int8)
    last, length = data.offsets[1:] - 1, np.diff(data.offsets)
    if split == "last":
        long = length >= 3
        part[last[long]], part[last[long] - 1] = TEST, VAL
        return part
    held = at_random(data.n_users, shares, seed, f"{path}: split='user' of {data.n_users} users")
    part[np.repeat(held != TRAIN, length)] = HELD_CONTEXT
    there = length >= 2
    part[last[there]] = held[there]
    return part


def _examples(data: Sequences, users: Ints, here: NDArray[np.bool_], places: int) -> Examples:
    """The places in ``here`` that have something before them."""
    start = data.offsets[users]
    at = np.flatnonzero(here & (np.arange(len(users)) > start))
    whose = users[at]
    return Examples(data.items, start[at], at, whose, data.items[at], whose, places, (0, data.n_items))


def _windows(data: Sequences, part: Parts, places: int) -> Windows:
    """Windows of ``places`` training items, cut from the end of each user's."""
    users = data.users[part == TRAIN]
    items = data.items[part == TRAIN]
    offsets = offsets_of(np.bincount(users, minlength=data.n_users))
    counts = -(-np.diff(offsets) // places)
    owner = np.repeat(np.arange(data.n_users), counts)
    back = np.arange(len(owner)) - np.repeat(offsets_of(counts)[:-1], counts)
    end = offsets[1:][owner] - back * places
    start = np.maximum(end - places, offsets[:-1][owner])
    return Windows(items, start, end, owner, places)

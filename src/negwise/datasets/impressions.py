"""Impressions: items shown together, with clicks. An example is one click; its negatives are the non-clicked items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, Ragged, difference, flat_indices, offsets_of
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
from negwise.datasets.task_data import Examples, TaskData, check_splits, count_positives
from negwise.datasets.timestamps import DAY_MS
from negwise.errors import InputError

IMPRESSION_SPLITS = ("time", "user", "folders")


@dataclass(frozen=True, eq=False)
class Impressions:
    """I impressions. The history of impression i is ``clicked[start[i]:end[i]]``; ``labels`` belong to ``shown.ids``.

    ``labelled`` (I,) is false if the clicks are unknown. ``folder`` (I,) is 0, 1, 2 for train, dev and test.
    """

    users: Ints
    times: Ints | None
    clicked: Ints
    start: Ints
    end: Ints
    shown: Ragged
    labels: NDArray[np.int8]
    labelled: NDArray[np.bool_]
    n_users: int
    n_items: int
    folder: Ints | None = None


def impressions_from_rows(
    users: Ints, items: Ints, times: Ints, labels: Ints, impressions: Ints, n_users: int, n_items: int
) -> Impressions:
    """Impressions from rows (user, item, time, label, impression) in any order.

    The time of an impression is that of its first row. Its history is what the user clicked before that time.
    """
    order = np.lexsort((times, impressions))
    number, first = np.unique(impressions[order], return_index=True)
    shown = Ragged(np.append(first, len(order)).astype(np.int64), items[order])
    owner, start_time = users[order][first], times[order][first]
    if (users[order] != np.repeat(owner, shown.lengths)).any():
        raise InputError("an impression has rows of two users; give each user a separate impression id")
    click = np.flatnonzero(labels == 1)
    click = click[np.lexsort((times[click], users[click]))]
    # One sorted key for (user, time), so that a single search finds the history of every impression.
    clock = np.unique(times, return_inverse=True)[1]
    span = int(clock.max()) + 1
    keys = users[click] * span + clock[click]
    start = np.searchsorted(keys, owner * span)
    end = np.searchsorted(keys, owner * span + clock[order][first])
    labelled = np.ones(len(number), bool)
    flat = labels[order].astype(np.int8)
    return Impressions(owner, start_time, items[click], start, end, shown, flat, labelled, n_users, n_items)


def impression_task(
    data: Impressions,
    split: str,
    shares: SplitSizes,
    max_length: int,
    seed: int,
    path: str,
) -> TaskData:
    """A task of examples (history -> click), grouped by impression. By ``split``:

    ``time``: the last days are held out. ``user``: users are held out. ``folders``: train/, dev/, test/ as published;
    if test/ is missing or has no labels, dev/ is test, and the last day of train/ is validation.
    """
    choices: dict[str, Callable[[], SplitLabels]] = {
        "time": lambda: split_by_time(_times(data, path), shares, path),
        "user": lambda: split_at_random(data.n_users, shares, seed, f"{path}: split='user' of {data.n_users} users")[
            data.users
        ],
        "folders": lambda: _by_folder(data, path),
    }
    split_of = choices[check_split_name(split, IMPRESSION_SPLITS, path, shares)]()
    unlabelled = split_of[~data.labelled]
    if (unlabelled != TEST).any() or (split == "time" and len(unlabelled)):
        raise InputError(
            f"{path}: {len(unlabelled)} impressions have no labels, which split={split!r} needs to train "
            "and to evaluate. Type --split folders, which leaves them out."
        )
    users = data.users
    row = data.shown.rows
    clicks = np.flatnonzero(data.labels == 1)
    all_examples = _examples(data, row[clicks], data.shown.ids[clicks], users, max_length)
    train, val, test = (_subset(all_examples, split_of[all_examples.groups] == which) for which in (TRAIN, VAL, TEST))
    click, n = data.labels == 1, len(data.shown)
    exclusions = Ragged.of_pairs(row[click], data.shown.ids[click], n)
    not_clicked = ~click & data.labelled[row]
    task = TaskData(
        "impressions",
        data.n_items,
        data.n_users,
        train,
        val,
        test,
        count_positives(train, data.n_items),
        train_exclusions=exclusions,
        eval_exclusions=exclusions,
        # Without the exclusions: an item may be shown twice and clicked once.
        negatives=difference(Ragged.of_pairs(row[not_clicked], data.shown.ids[not_clicked], n), exclusions),
        impressions=data.shown,
        labels=data.labels,
        histories=click_histories(data),
        split=split,
        notes=_notes(data),
    )
    return check_splits(task, path)


def click_histories(data: Impressions) -> Ragged:
    """Of each user: the history of the last impression, then clicks that are not in it, each once, in order of time."""
    times = np.zeros(len(data.users), np.int64) if data.times is None else data.times
    order = np.lexsort((times, data.users))  # without times, the order of the data
    users = data.users[order]
    last = order[np.flatnonzero(np.append(users[1:] != users[:-1], True))] if len(users) else order
    offsets = offsets_of(data.end[last] - data.start[last])
    past = data.clicked[flat_indices(data.start[last], offsets)]
    owner = np.repeat(data.users[last], np.diff(offsets))
    clicked = np.flatnonzero(data.labels == 1)
    row = np.searchsorted(data.shown.offsets, clicked, side="right") - 1
    by_time = np.lexsort((clicked, times[row], data.users[row]))
    who, what = data.users[row][by_time], data.shown.ids[clicked][by_time]
    new = ~np.isin(who * data.n_items + what, owner * data.n_items + past)
    later = Ragged.in_order(who[new], what[new], data.n_users)
    whose = np.concatenate((owner, later.rows))
    items = np.concatenate((past, later.ids))[np.argsort(whose, kind="stable")]
    return Ragged(offsets_of(np.bincount(whose, minlength=data.n_users)), items)


def _notes(data: Impressions) -> tuple[str, ...]:
    hidden = int((~data.labelled).sum())
    return (f"{hidden} impressions without labels are in no split",) if hidden else ()


def _times(data: Impressions, path: str) -> Ints:
    if data.times is None:
        raise InputError(f"{path}: split='time' needs times, and the data has none. Type --split user.")
    return data.times


def _by_folder(data: Impressions, path: str) -> SplitLabels:
    if data.folder is None or not (data.folder == 1).any() or data.times is None:
        raise InputError(f"{path}: split='folders' needs train/ and dev/. Type --split user.")
    labelled_test = (data.folder == 2) & data.labelled
    if labelled_test.any():
        return data.folder.astype(np.int8)
    day = data.times // DAY_MS
    train = data.folder == 0
    last = train & (day == day[train].max())
    return np.where(train & ~last, TRAIN, np.where(last, VAL, TEST)).astype(np.int8)


def _examples(data: Impressions, groups: Ints, positives: Ints, users: Ints, max_length: int) -> Examples:
    start, end, owner = data.start[groups], data.end[groups], users[groups]
    return Examples(data.clicked, start, end, owner, positives, groups, max_length, (0, data.n_items))


def _subset(examples: Examples, in_split: NDArray[np.bool_]) -> Examples:
    start, end, users, positives, groups = (
        part[in_split] for part in (examples.start, examples.end, examples.users, examples.positives, examples.groups)
    )
    return replace(examples, start=start, end=end, users=users, positives=positives, groups=groups)

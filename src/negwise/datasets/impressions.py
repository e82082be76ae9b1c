"""Impressions: items shown together, with clicks. An example is one click; its negatives are the non-clicked items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from negwise.datasets.impression_lists import ImpressionLists, Impressions, lists_of
from negwise.datasets.mapped_arrays import let_go
from negwise.datasets.ragged import Ints, Ragged, distinct, narrow, pair_keys
from negwise.datasets.splits import (
    MIN_GROUPS,
    TEST,
    TRAIN,
    VAL,
    SplitLabels,
    SplitSizes,
    check_split_name,
    has_enough_days,
    span_in_words,
    split_at_random,
    split_by_time,
)
from negwise.datasets.task_data import Examples, TaskData, check_splits, count_positives
from negwise.datasets.timestamps import DAY_MS
from negwise.errors import InputError

IMPRESSION_SPLITS = ("time", "user", "folders")


def impressions_from_rows(
    users: Ints, items: Ints, times: Ints, labels: Ints, impressions: Ints, n_users: int, n_items: int
) -> Impressions:
    """Impressions from rows (user, item, time, label, impression) in any order.

    The time of an impression is that of its first row. Its history is what the user clicked before that time.
    """
    order = np.lexsort((times, impressions))
    grouped = impressions[order]
    first = np.flatnonzero(np.append(True, grouped[1:] != grouped[:-1])) if len(order) else order
    shown = Ragged(np.append(first, len(order)).astype(np.int64), items[order])
    owner, start_time = users[order[first]], times[order[first]]
    if (users[order] != np.repeat(owner, shown.lengths)).any():
        raise InputError("an impression has rows of two users; give each user a separate impression id")
    click = np.flatnonzero(labels == 1)
    click = click[np.lexsort((times[click], users[click]))]
    # One sorted key for (user, time), so that a single search finds the history of every impression.
    clock = distinct(times.copy())
    keys = pair_keys(users[click], np.searchsorted(clock, times[click]), len(clock))
    start = np.searchsorted(keys, pair_keys(owner, np.zeros(1, np.int64), len(clock)))
    end = np.searchsorted(keys, pair_keys(owner, np.searchsorted(clock, start_time), len(clock)))
    labelled = np.ones(len(first), bool)
    flat = labels[order].astype(np.int8)
    return Impressions(owner, start_time, items[click], start, end, shown, flat, labelled, n_users, n_items)


def impression_task(
    data: Impressions,
    split: str | None,
    shares: SplitSizes,
    max_length: int,
    seed: int,
    path: str,
) -> TaskData:
    """A task of examples (history -> click), grouped by impression. By ``split``, None for `default_split`:

    ``time``: the last days are held out. ``user``: users are held out. ``folders``: train/, dev/, test/ as published;
    if test/ is missing or has no labels, dev/ is test, and the last day of train/ is validation.
    """
    why = None
    if split is None:
        split, why = default_split(data, shares)
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
    lists = lists_of(data)
    split_of_click = split_of[lists.click_rows]
    train, val, test = (
        _examples(data, lists, np.flatnonzero(split_of_click == which), max_length) for which in (TRAIN, VAL, TEST)
    )
    let_go(data.users, data.start, lists.click_rows, lists.click_items, *([] if data.times is None else [data.times]))
    task = TaskData(
        "impressions",
        data.n_items,
        data.n_users,
        train,
        val,
        test,
        count_positives(train, data.n_items),
        train_exclusions=lists.clicked,
        eval_exclusions=lists.clicked,
        negatives=lists.not_clicked,
        impressions=data.shown,
        labels=data.labels,
        histories=lists.histories,
        split=split,
        notes=(*(() if why is None else (why,)), *_notes(data)),
    )
    return check_splits(task, path)


def possible_splits(data: Impressions, shares: SplitSizes) -> tuple[str, ...]:
    """The splits that can be made: enough days for time, enough users for user, existing folders for folders."""
    whole = bool(data.labelled.all())
    can = {
        "time": whole and data.times is not None and has_enough_days(data.times, shares),
        "user": whole and data.n_users >= MIN_GROUPS,
        "folders": data.folder is not None and bool((data.folder == 1).any()),
    }
    return tuple(name for name in IMPRESSION_SPLITS if can[name])


def default_split(data: Impressions, shares: SplitSizes) -> tuple[str, str | None]:
    """By time; where that cannot be, by the published folders or by users, and why."""
    possible = possible_splits(data, shares)
    name = next((name for name in ("time", "folders", "user") if name in possible), "time")
    if name == "time" or shares.folds is not None:  # folds want a choice, and the error names it
        return "time", None
    if not data.labelled.all():
        why = "not all impressions have labels, which a split by time needs"
    elif data.times is None:
        why = "the data has no times"
    else:
        needed = shares.test_days + shares.val_days + 1
        why = f"{span_in_words(data.times)}, are too few for a split by time, which needs {needed}"
    return name, f"split by {name}: {why} (--split says another)"


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


def _examples(data: Impressions, lists: ImpressionLists, clicks: Ints, max_length: int) -> Examples:
    groups, last = lists.click_rows[clicks], len(data.clicked) + 1
    start, end = (narrow(bound[groups], last) for bound in (data.start, data.end))
    users, positives = data.users[groups], lists.click_items[clicks]
    return Examples(data.clicked, start, end, users, positives, groups, max_length, (0, data.n_items))

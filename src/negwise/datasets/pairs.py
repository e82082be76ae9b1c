"""Text pairs: find the right text that belongs to a left text.

P pairs of the data, Q texts that are only negatives. An item is a pair, left and right together. A text that is only a
negative is an item with an empty left text.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.near_duplicates import equal_texts
from negwise.datasets.ragged import Ints, Ragged, difference, distinct_pairs, offsets_of
from negwise.datasets.splits import TEST, TRAIN, VAL, SplitLabels, SplitSizes, check_split_name, split_at_random
from negwise.datasets.task_data import Examples, TaskData, check_splits, count_positives
from negwise.errors import InputError

PAIR_SPLITS = ("random", "folders")


@dataclass(frozen=True, eq=False)
class PairTable:
    """``left`` and ``right`` (P lists of word ids), ``negatives`` (P lists of row numbers of ``texts``).

    ``near`` (P + Q,) are group ids of equal or near-equal texts, right texts first. ``folder`` (P,) is 0, 1 or 2 for
    train, dev and test, if the data is divided that way.
    """

    left: Ragged
    right: Ragged
    texts: Ragged
    negatives: Ragged
    near: Ints
    folder: Ints | None = None


@dataclass(frozen=True, eq=False)
class ArrangedPairs:
    """A task, and for each of its items the row of `PairTable` (right texts, then ``texts``)."""

    task: TaskData
    rows: Ints


def pair_task(data: PairTable, split: str, shares: SplitSizes, seed: int, path: str) -> ArrangedPairs:
    """A task of text pairs. Items are in the order training, validation, test; each split has its own candidate range.

    ``random``: groups of near-equal right texts are held out whole. ``folders``: as in the data, without held-out pairs
    whose right text is near-equal to one of an earlier split. So no two splits share equal or near-equal right texts.
    A right text is excluded as a negative of a left text if any pair joins that left text with an equal right text.
    """
    check_split_name(split, PAIR_SPLITS, path, shares)
    n_pairs = len(data.right)
    notes: list[str] = []
    title, body = equal_texts(data.left), equal_texts(data.right.followed_by(data.texts))
    split_of = _by_group(data, shares, seed, path) if split == "random" else _by_folder(data, path)

    distinct = np.zeros(n_pairs, bool)
    distinct[np.unique(title * (body.max(initial=0) + 1) + body[:n_pairs], return_index=True)[1]] = True
    if not distinct.all():
        notes.append(f"{int((~distinct).sum())} pairs repeat another pair and were left out")
    kept = distinct & (split_of[:n_pairs] >= 0)
    if (distinct & ~kept).any():
        notes.append(
            f"{int((distinct & ~kept).sum())} held-out pairs are near one of an earlier split and were left out"
        )

    pair, negative = _given_negatives(data, body, split_of, kept, notes)
    used = np.concatenate((kept, np.zeros(len(data.texts), bool)))
    used[negative] = True
    rows = np.flatnonzero(used)
    rows = rows[np.argsort(split_of[rows], kind="stable")]
    item = np.full(len(used), -1)
    item[rows] = np.arange(len(rows))

    # A group is a left text within a split, so that two splits never share a list.
    pairs_kept = rows[rows < n_pairs]
    group_key = title * 3 + split_of[:n_pairs]
    group_of = np.full(n_pairs, -1)
    numbers, group_of[pairs_kept] = np.unique(group_key[pairs_kept], return_inverse=True)
    exclusions = _exclusions(title, body, pairs_kept, group_of[pairs_kept], rows)
    negatives = _drop_excluded(Ragged.in_order(group_of[pair], item[negative], len(numbers)), exclusions, notes)

    counts = np.bincount(split_of[rows], minlength=3)
    ends = np.cumsum(counts)
    train, val, test = (
        _examples(
            item[pairs_kept],
            split_of[pairs_kept] == which,
            group_of[pairs_kept],
            len(rows),
            (int(end - count), int(end)),
        )
        for which, count, end in zip((TRAIN, VAL, TEST), counts, ends, strict=True)
    )
    task = TaskData(
        "pairs",
        n_items=len(rows),
        n_users=len(rows),
        train=train,
        val=val,
        test=test,
        popularity=count_positives(train, len(rows)),
        train_exclusions=exclusions,
        eval_exclusions=exclusions,
        negatives=negatives if len(pair) else None,
        split=split,
        notes=tuple(notes),
    )
    return ArrangedPairs(check_splits(task, path), rows)


def _by_group(data: PairTable, shares: SplitSizes, seed: int, path: str) -> SplitLabels:
    """Groups with a pair are split at random. A group of negatives only follows the first pair that lists it."""
    n_pairs = len(data.right)
    groups = np.unique(data.near[:n_pairs])
    what = f"{path}: split='random' of {n_pairs} pairs, which form {len(groups)} groups of near-equal texts"
    split_of = np.zeros(int(data.near.max(initial=-1)) + 1, np.int8)
    split_of[groups] = split_at_random(len(groups), shares, seed, what)
    negative_groups = data.near[n_pairs + data.negatives.ids[::-1]]
    alone = ~np.isin(negative_groups, groups)
    split_of[negative_groups[alone]] = split_of[data.near[data.negatives.rows[::-1][alone]]]
    return split_of[data.near]


def _by_folder(data: PairTable, path: str) -> SplitLabels:
    """The split of each row; -1 for held-out pairs that are near-duplicates of an earlier split."""
    if data.folder is None or len(np.unique(data.folder)) < 3:
        raise InputError(f"{path}: split='folders' needs train/, dev/ and test/. Type --split random.")
    earliest = np.full(int(data.near.max()) + 1, TEST)
    np.minimum.at(earliest, data.near[: len(data.folder)], data.folder)
    split_of = np.concatenate((data.folder, earliest[data.near[len(data.folder) :]]))
    return np.where(split_of > earliest[data.near], -1, split_of).astype(np.int8)


def _given_negatives(
    data: PairTable, body: Ints, split_of: SplitLabels, kept: NDArray[np.bool_], notes: list[str]
) -> tuple[Ints, Ints]:
    """(pair, row of the negative) for each given negative in the same split as its pair."""
    n_pairs = len(data.right)
    pair, text = data.negatives.rows, data.negatives.ids + n_pairs
    # A negative that equals the right text of a kept pair is replaced by that pair.
    same = np.full(int(body.max(initial=-1)) + 1, -1)
    owners = np.flatnonzero(kept)[::-1]
    same[body[owners]] = owners
    row = np.where(same[body[text]] >= 0, same[body[text]], text)
    inside = kept[pair] & (split_of[row] == split_of[pair])
    crossing = int((kept[pair] & ~inside).sum())
    if crossing:
        notes.append(f"{crossing} given negatives are in another split than their pair and were left out")
    return pair[inside], row[inside]


def _drop_excluded(given: Ragged, exclusions: Ragged, notes: list[str]) -> Ragged:
    kept = difference(given, exclusions)
    if len(kept.ids) < len(given.ids):
        notes.append(
            f"{len(given.ids) - len(kept.ids)} given negatives are right texts of the same left text and were left out"
        )
    return kept


def _exclusions(title: Ints, body: Ints, pairs_kept: Ints, group: Ints, rows: Ints) -> Ragged:
    """For each group, the items whose right text is paired with the group's left text, in any split or left out."""
    titles, bodies = distinct_pairs(title, body[: len(title)])
    by_title = Ragged(offsets_of(np.bincount(titles, minlength=int(title.max(initial=0)) + 1)), bodies)
    order = np.argsort(body[rows], kind="stable")
    by_body = Ragged(offsets_of(np.bincount(body[rows], minlength=int(body.max(initial=0)) + 1)), order)
    groups, titles = distinct_pairs(group, title[pairs_kept])
    wanted = by_title.take(titles)
    items = by_body.take(wanted.ids)
    return Ragged.of_pairs(groups[wanted.rows[items.rows]], items.ids, int(group.max(initial=-1)) + 1)


def _examples(
    items: Ints, in_split: NDArray[np.bool_], groups: Ints, n_items: int, candidates: tuple[int, int]
) -> Examples:
    own = items[in_split]
    return Examples(np.arange(n_items), own, own + 1, own, own, groups[in_split], 1, candidates)

"""Text pairs: which right side belongs to this left side?

P pairs as written, Q texts that are only negatives. An item is a document, left and right together; a text that
is only a negative is an item whose left side is empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.examples import Examples, Task, check_splits, popularity
from negwise.datasets.near import equal_texts
from negwise.datasets.ragged import Ints, Ragged, distinct_pairs, less, offsets_of
from negwise.datasets.splits import TEST, TRAIN, VAL, Parts, Shares, at_random, check_choice
from negwise.errors import InputError

SPLITS = ("random", "folders")


@dataclass(frozen=True, eq=False)
class Documents:
    """``left`` and ``right`` (P lists of word numbers), ``negatives`` (P lists of numbers into ``texts``).

    ``near`` (P + Q,) numbers the groups of equal or nearly equal bodies, right sides first. ``folder`` (P,) is 0, 1
    or 2 where the data says which split a document belongs to.
    """

    left: Ragged
    right: Ragged
    texts: Ragged
    negatives: Ragged
    near: Ints
    folder: Ints | None = None


@dataclass(frozen=True, eq=False)
class Arranged:
    """A task, and the row of ``Documents`` (right sides, then texts) behind each of its items."""

    task: Task
    rows: Ints


def document_task(data: Documents, split: str, shares: Shares, seed: int, path: str) -> Arranged:
    """Items come in the order training, validation, test; each split draws negatives from its own range.

    ``random``: groups of near-equal bodies are held out whole. ``folders``: as the data says, less held-out documents
    with a body near one of an earlier split. Either way no body has an equal or near-equal one in another split.
    A body is no negative of a left side if any pair joins that left side with an equal body.
    """
    check_choice(split, SPLITS, path, shares)
    n_pairs = len(data.right)
    notes: list[str] = []
    title, body = equal_texts(data.left), equal_texts(data.right.followed_by(data.texts))
    part = _by_group(data, shares, seed, path) if split == "random" else _by_folder(data, path)

    distinct = np.zeros(n_pairs, bool)
    distinct[np.unique(title * (body.max(initial=0) + 1) + body[:n_pairs], return_index=True)[1]] = True
    if not distinct.all():
        notes.append(f"{int((~distinct).sum())} pairs repeat another pair and were left out")
    kept = distinct & (part[:n_pairs] >= 0)
    if (distinct & ~kept).any():
        notes.append(f"{int((distinct & ~kept).sum())} held-out documents are near one of an earlier split: left out")

    pair, negative = _given(data, body, part, kept, notes)
    used = np.concatenate((kept, np.zeros(len(data.texts), bool)))
    used[negative] = True
    rows = np.flatnonzero(used)
    rows = rows[np.argsort(part[rows], kind="stable")]
    item = np.full(len(used), -1)
    item[rows] = np.arange(len(rows))

    # a group is a left side within a split, so that the lists of two splits stay apart
    asking = rows[rows < n_pairs]
    group_key = title * 3 + part[:n_pairs]
    group_of = np.full(n_pairs, -1)
    numbers, group_of[asking] = np.unique(group_key[asking], return_inverse=True)
    known = _known(title, body, asking, group_of[asking], rows)
    negatives = _less_known(Ragged.of_pairs(group_of[pair], item[negative], len(numbers)), known, notes)

    counts = np.bincount(part[rows], minlength=3)
    ends = np.cumsum(counts)
    train, val, test = (
        _examples(item[asking], part[asking] == which, group_of[asking], len(rows), (int(end - count), int(end)))
        for which, count, end in zip((TRAIN, VAL, TEST), counts, ends, strict=True)
    )
    task = Task(
        "pairs",
        n_items=len(rows),
        n_users=len(rows),
        train=train,
        val=val,
        test=test,
        popularity=popularity(train, len(rows)),
        known=known,
        seen=known,
        negatives=negatives if len(pair) else None,
        split=split,
        notes=tuple(notes),
    )
    return Arranged(check_splits(task, path), rows)


def _by_group(data: Documents, shares: Shares, seed: int, path: str) -> Parts:
    """Groups with a pair are held out at random; one of negatives alone goes with the first pair that names it."""
    n_pairs = len(data.right)
    groups = np.unique(data.near[:n_pairs])
    what = f"{path}: split='random' of {n_pairs} pairs, whose bodies form {len(groups)} groups of near-equal ones"
    part = np.zeros(int(data.near.max(initial=-1)) + 1, np.int8)
    part[groups] = at_random(len(groups), shares, seed, what)
    named = data.near[n_pairs + data.negatives.ids[::-1]]
    alone = ~np.isin(named, groups)
    part[named[alone]] = part[data.near[data.negatives.rows[::-1][alone]]]
    return part[data.near]


def _by_folder(data: Documents, path: str) -> Parts:
    """-1 for a held-out document that is near one of an earlier split."""
    if data.folder is None or len(np.unique(data.folder)) < 3:
        raise InputError(f"{path}: split='folders' needs train/, dev/ and test/. Type --split random.")
    earliest = np.full(int(data.near.max()) + 1, TEST)
    np.minimum.at(earliest, data.near[: len(data.folder)], data.folder)
    part = np.concatenate((data.folder, earliest[data.near[len(data.folder) :]]))
    return np.where(part > earliest[data.near], -1, part).astype(np.int8)


def _given(data: Documents, body: Ints, part: Parts, kept: NDArray[np.bool_], notes: list[str]) -> tuple[Ints, Ints]:
    """(pair, row of the negative) for each given negative that lies in the split of its pair."""
    n_pairs = len(data.right)
    pair, text = data.negatives.rows, data.negatives.ids + n_pairs
    # a negative that is also someone's right side is that document
    same = np.full(int(body.max(initial=-1)) + 1, -1)
    owners = np.flatnonzero(kept)[::-1]
    same[body[owners]] = owners
    row = np.where(same[body[text]] >= 0, same[body[text]], text)
    inside = kept[pair] & (part[row] == part[pair])
    crossing = int((kept[pair] & ~inside).sum())
    if crossing:
        notes.append(f"{crossing} given negatives lie in another split than their pair and were left out")
    return pair[inside], row[inside]


def _less_known(given: Ragged, known: Ragged, notes: list[str]) -> Ragged:
    kept = less(given, known)
    if len(kept.ids) < len(given.ids):
        notes.append(
            f"{len(given.ids) - len(kept.ids)} given negatives are right sides of their own left side: left out"
        )
    return kept


def _known(title: Ints, body: Ints, asking: Ints, group: Ints, rows: Ints) -> Ragged:
    """For each group, the items whose body some pair, in a split or left out, joins with the group's left side."""
    titles, bodies = distinct_pairs(title, body[: len(title)])
    by_title = Ragged(offsets_of(np.bincount(titles, minlength=int(title.max(initial=0)) + 1)), bodies)
    order = np.argsort(body[rows], kind="stable")
    by_body = Ragged(offsets_of(np.bincount(body[rows], minlength=int(body.max(initial=0)) + 1)), order)
    groups, titles = distinct_pairs(group, title[asking])
    wanted = by_title.take(titles)
    items = by_body.take(wanted.ids)
    return Ragged.of_pairs(groups[wanted.rows[items.rows]], items.ids, int(group.max(initial=-1)) + 1)


def _examples(
    items: Ints, here: NDArray[np.bool_], groups: Ints, n_items: int, candidates: tuple[int, int]
) -> Examples:
    mine = items[here]
    return Examples(np.arange(n_items), mine, mine + 1, mine, mine, groups[here], 1, candidates)

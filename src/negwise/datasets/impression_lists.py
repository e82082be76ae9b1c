"""Impressions, and what follows from them whatever the split: lists of clicks and non-clicks, histories of users.

All of it is made a block at a time, so that memory does not grow with the impressions where they are memory maps.
I impressions, C clicks, U users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.mapped_arrays import let_go
from negwise.datasets.ragged import (
    Ints,
    Ragged,
    blocks_of_rows,
    difference,
    flat_indices,
    narrow,
    offsets_of,
    pair_keys,
    stacked,
)
from negwise.stages import Progress

BLOCK = 2**18
"""Impressions at a time."""


@dataclass(frozen=True, eq=False)
class ImpressionLists:
    """``click_rows`` (C,) and ``click_items`` (C,): the impression and the item of each click, in the order shown.

    ``clicked`` and ``not_clicked`` (I lists) are sorted sets; an item that was shown twice and clicked once is clicked.
    ``histories`` (U lists): see `history_blocks`.
    """

    click_rows: Ints
    click_items: Ints
    clicked: Ragged
    not_clicked: Ragged
    histories: Ragged


@dataclass(frozen=True, eq=False)
class Impressions:
    """I impressions. The history of impression i is ``clicked[start[i]:end[i]]``; ``labels`` belong to ``shown.ids``.

    ``labelled`` (I,) is false if the clicks are unknown. ``folder`` (I,) is 0, 1, 2 for train, dev and test. ``lists``
    are there if they were made before.
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
    lists: ImpressionLists | None = None


class ClickBlock(NamedTuple):
    """`ImpressionLists` of some impressions, without histories."""

    click_rows: Ints
    click_items: Ints
    clicked: Ragged
    not_clicked: Ragged


def lists_of(data: Impressions) -> ImpressionLists:
    """The lists of ``data``: those that it has, or new ones in memory."""
    if data.lists is not None:
        return data.lists
    blocks = list(click_blocks(data))
    rows = np.concatenate([block.click_rows for block in blocks])
    items = np.concatenate([block.click_items for block in blocks])
    clicked, others = stacked(block.clicked for block in blocks), stacked(block.not_clicked for block in blocks)
    return ImpressionLists(rows, items, clicked, others, stacked(history_blocks(data, rows, items)))


def click_blocks(data: Impressions, progress: Progress | None = None) -> Iterator[ClickBlock]:
    """Clicks and non-clicks of `BLOCK` impressions at a time."""
    n = len(data.shown)
    for first in range(0, max(n, 1), BLOCK):
        last = min(first + BLOCK, n)
        shown = data.shown.between(first, last)
        click = data.labels[data.shown.offsets[first] : data.shown.offsets[last]] == 1
        row = shown.rows
        clicked = Ragged.of_pairs(row[click], shown.ids[click], len(shown))
        hidden = ~data.labelled[first:last][row]
        others = ~(click | hidden)
        # Without the clicks: an item may be shown twice and clicked once.
        not_clicked = difference(Ragged.of_pairs(row[others], shown.ids[others], len(shown)), clicked)
        yield ClickBlock(narrow(row[click] + first, n), shown.ids[click], clicked, not_clicked)
        let_go(data.shown.ids, data.shown.offsets, data.labels)
        if progress is not None:
            progress(last / max(n, 1))


def history_blocks(
    data: Impressions, click_rows: Ints, click_items: Ints, progress: Progress | None = None
) -> Iterator[Ragged]:
    """Of each user: the history of the last impression, then clicks that are not in it, each once, in order of time.

    Some users at a time, who have about `BLOCK` impressions together.
    """
    by_user, clicks_by_user = _by_owner(data.users, data.n_users), _by_owner(data.users[click_rows], data.n_users)
    for first, last in blocks_of_rows(by_user.offsets, BLOCK):
        rows, clicks = by_user.between(first, last), clicks_by_user.between(first, last)
        yield _histories(data, rows, click_rows[clicks.ids], click_items[clicks.ids], clicks.rows)
        if progress is not None:
            progress(last / data.n_users)


def _histories(data: Impressions, rows: Ragged, click_rows: Ints, click_items: Ints, who: Ints) -> Ragged:
    """Histories of some users, who have the impressions ``rows``; ``who`` is the user of each click, from 0."""
    users = rows.rows
    # Without times, the order of the data.
    times = np.zeros(len(users), np.int64) if data.times is None else data.times[rows.ids]
    order = np.lexsort((times, users))
    last = rows.ids[order[rows.offsets[1:][rows.lengths > 0] - 1]]
    offsets = offsets_of(data.end[last] - data.start[last])
    past = data.clicked[flat_indices(data.start[last], offsets)]
    owner = np.repeat(np.flatnonzero(rows.lengths > 0), np.diff(offsets))
    clock = np.zeros(len(who), np.int64) if data.times is None else data.times[click_rows]
    by_time = np.lexsort((clock, who))
    who, what = who[by_time], click_items[by_time]
    new = ~np.isin(pair_keys(who, what, data.n_items), pair_keys(owner, past, data.n_items))
    later = Ragged.in_order(who[new], what[new], len(rows))
    whose = np.concatenate((owner, later.rows))
    items = np.concatenate((past, later.ids))[np.argsort(whose, kind="stable")]
    return Ragged(offsets_of(np.bincount(whose, minlength=len(rows))), items)


def _by_owner(owners: Ints, n: int) -> Ragged:
    """For each owner the places where it stands in ``owners``, in order."""
    order = np.argsort(owners, kind="stable")
    return Ragged(offsets_of(np.bincount(owners, minlength=n)), narrow(order, len(owners)))

"""Ragged lists of ids: a flat array with offsets, the layout that samplers and metrics take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
"""Whole numbers: int64, or int32 where there are many and all of them fit (`narrow`). Products need `pair_keys`."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row r has ``ids[offsets[r]:offsets[r + 1]]``: ``offsets`` (R + 1,) are int64, ``ids`` (N,) int64 or int32."""

    offsets: Ints
    ids: Ints

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Ragged:
        parts = [np.asarray(row, np.int64) for row in rows]
        return cls(
            offsets_of(np.array([len(part) for part in parts], np.int64)),
            np.concatenate(parts) if parts else np.zeros(0, np.int64),
        )

    @classmethod
    def of_pairs(cls, rows: Ints, ids: Ints, n_rows: int) -> Ragged:
        """From (row, id) pairs in any order. Each row becomes a sorted set."""
        kind = ids.dtype
        rows, ids = distinct_pairs(rows, ids)
        return cls(offsets_of(np.bincount(rows, minlength=n_rows)), ids.astype(kind, copy=False))

    @classmethod
    def in_order(cls, rows: Ints, ids: Ints, n_rows: int) -> Ragged:
        """From (row, id) pairs. Each row keeps the order in which its ids came, each id once."""
        span = int(ids.max(initial=0)) + 1
        first = np.sort(np.unique(pair_keys(rows, ids, span), return_index=True)[1])
        rows, ids = rows[first], ids[first]
        return cls(offsets_of(np.bincount(rows, minlength=n_rows)), ids[np.argsort(rows, kind="stable")])

    @classmethod
    def of_arrow(cls, column: Any) -> Ragged:
        """From an Arrow list column, chunked or not. A null becomes an empty list."""
        lengths = [chunk.value_lengths().fill_null(0).to_numpy(zero_copy_only=False) for chunk in column.chunks]
        ids = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
        empty = [np.zeros(0, np.int64)]
        return cls(
            offsets_of(np.concatenate(lengths or empty).astype(np.int64)),
            np.concatenate(ids or empty).astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Ints:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    @property
    def rows(self) -> Ints:
        """The row of each id, (N,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def between(self, first: int, last: int) -> Ragged:
        """The lists of rows ``first`` to ``last`` - 1; ids are not copied."""
        offsets = self.offsets[first : last + 1]
        return Ragged(offsets - offsets[0], self.ids[offsets[0] : offsets[-1]])

    def followed_by(self, other: Ragged) -> Ragged:
        """The rows of both, those of ``self`` first."""
        lengths = np.concatenate((self.lengths, other.lengths))
        return Ragged(offsets_of(lengths), np.concatenate((self.ids, other.ids)))

    def take(self, rows: Ints) -> Ragged:
        """The lists of ``rows``, in that order."""
        offsets = offsets_of(self.lengths[rows])
        return Ragged(offsets, self.ids[flat_indices(self.offsets[rows], offsets)])


def difference(lists: Ragged, others: Ragged) -> Ragged:
    """Row by row, the ids of ``lists`` that are not in ``others``, whose rows are sorted sets."""
    span = max(int(lists.ids.max(initial=0)), int(others.ids.max(initial=0))) + 1
    mine, theirs = (pair_keys(part.rows, part.ids, span) for part in (lists, others))
    at = np.searchsorted(theirs, mine)
    kept = np.append(theirs, -1)[at] != mine
    return Ragged(offsets_of(np.bincount(lists.rows[kept], minlength=len(lists))), lists.ids[kept])


def blocks_of_rows(offsets: Ints, size: int) -> list[tuple[int, int]]:
    """(first, last) of rows side by side that have about ``size`` ids together; ``last`` is not among them."""
    n = len(offsets) - 1
    ends = np.searchsorted(offsets, np.arange(size, int(offsets[-1]) + size, size)).clip(max=n)
    bounds = np.unique(np.concatenate(([0], ends, [n]))).tolist()
    return list(pairwise(bounds))


def stacked(blocks: Iterable[Ragged]) -> Ragged:
    """The rows of all ``blocks``, one after the other."""
    parts = list(blocks)
    lengths = [part.lengths for part in parts]
    return Ragged(offsets_of(np.concatenate(lengths)), np.concatenate([part.ids for part in parts]))


def offsets_of(lengths: NDArray[np.integer[Any]]) -> Ints:
    """(R,) lengths -> (R + 1,) offsets."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def flat_indices(starts: Ints, offsets: Ints) -> Ints:
    """Flat indices of the lists that begin at ``starts``, list after list; ``offsets`` has their lengths."""
    return np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], np.diff(offsets))


def distinct_pairs(left: Ints, right: Ints) -> tuple[Ints, Ints]:
    """The distinct pairs of two arrays of ids, sorted."""
    span = int(right.max(initial=0)) + 1
    # Sort one integer key per pair: np.unique, on the rows of a matrix or by hashing, takes ten times as long.
    keys = distinct(pair_keys(left, right, span))
    left = keys // span
    keys %= span
    return left, keys


def pair_keys(left: Ints, right: Ints, span: int) -> NDArray[np.int64]:
    """One number for each pair, in the order of pairs: left * span + right, for right < span. int64, always."""
    keys = left.astype(np.int64)  # a product of int32 would overflow without a word
    keys *= span
    keys += right
    return keys


def distinct(keys: Ints) -> Ints:
    """The distinct ``keys``, sorted. ``keys`` itself is sorted in place."""
    keys.sort()
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys


def narrow(values: Ints, below: int) -> Ints:
    """``values``, all of them less than ``below``, as int32 if that holds them; else as they are."""
    return values.astype(np.int32, copy=False) if below <= 2**31 else values

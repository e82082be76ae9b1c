"""Exact search for equal and near-equal texts: pairs whose shingles have Jaccard similarity >= `THRESHOLD`.

A shingle is `WIDTH` consecutive words; a shorter text is a single shingle. Two sets with Jaccard >= t share a shingle
among the first ``n - ceil(t n) + 1`` of each, if both are sorted rarest first (prefix filtering, Chaudhuri et al., ICDE
2006). So only texts that share a rare shingle are compared, and no pair is missed. Groups are connected components, and
pairs within a group are not compared again: the cost of many texts of one template is linear in their number. N texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets.ragged import Ints, Ragged, distinct_pairs, flat_indices, offsets_of

WIDTH = 5
THRESHOLD = 0.7
CHUNK_PAIRS = 2**14

_HASH_INCREMENT = np.uint64(0x9E3779B97F4A7C15)


def near_duplicate_groups(texts: Ragged, threshold: float = THRESHOLD) -> Ints:
    """(N,) Group ids from 0, in the order of the first members. ``texts`` holds word ids."""
    sets = shingles(texts)
    _, first, same = np.unique(_list_hashes(_hash(sets.ids), sets.offsets), return_index=True, return_inverse=True)
    # From here on equal sets are one text: a text repeated a thousand times must not make a million pairs.
    label = _component_labels(sets.take(first), threshold)[same.reshape(-1)]
    _, order, label = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(order), np.int64)
    rank[np.argsort(order)] = np.arange(len(order))
    return rank[label.reshape(-1)]


def shingles(texts: Ragged, width: int = WIDTH) -> Ragged:
    """Each text as its sorted set of shingle ids. Ids are ordered by rarity: 0 is the rarest."""
    length = texts.lengths
    count = np.maximum(length - width + 1, 1)
    offsets = offsets_of(count)
    at = flat_indices(texts.offsets[:-1], offsets)
    last = np.repeat(texts.offsets[1:], count)
    code = np.repeat(_hash(np.minimum(length, width)), count)
    words = _hash(texts.ids + 1)
    for step in range(width):
        inside = at + step < last
        word = words[np.minimum(at + step, max(len(words) - 1, 0))] if len(words) else code
        code = _hash(code * np.uint64(31) + np.where(inside, word, np.uint64(0)))
    row = np.repeat(np.arange(len(texts)), count)
    _, kind, seen = np.unique(code, return_inverse=True, return_counts=True)
    rarity = np.empty(len(seen), np.int64)
    rarity[np.argsort(seen, kind="stable")] = np.arange(len(seen))
    return Ragged.of_pairs(row, rarity[kind.reshape(-1)], len(texts))


def equal_texts(texts: Ragged) -> Ints:
    """(N,) Ids from 0, equal exactly for texts with the same words in the same order."""
    place = np.arange(len(texts.ids)) - np.repeat(texts.offsets[:-1], texts.lengths)
    code = _list_hashes(_hash(texts.ids + 1) * (_hash(place) | np.uint64(1)), texts.offsets)
    return np.unique(code, return_inverse=True)[1].reshape(-1)


def _component_labels(sets: Ragged, threshold: float) -> Ints:
    """Labels of rows, equal if a chain of pairs with Jaccard similarity >= ``threshold`` connects them."""
    size = sets.lengths
    keep = size - np.ceil(threshold * size - 1e-9).astype(np.int64) + 1
    offsets = offsets_of(keep)
    prefix = flat_indices(sets.offsets[:-1], offsets)
    order = np.argsort(sets.ids[prefix], kind="stable")
    kind, row = sets.ids[prefix][order], np.repeat(np.arange(len(sets)), keep)[order]
    # From their first common shingle on, two sets share at most this many (positional filter, Xiao et al., WWW 2008).
    # At a later common shingle the bound is too small, but the pair was compared before.
    left = (np.repeat(size, keep) - flat_indices(np.zeros(len(sets), np.int64), offsets))[order]
    label = np.arange(len(sets))
    # Rows that share a shingle are adjacent, so the pairs at all distances within a run are all pairs.
    distance = 1
    alive = np.arange(len(kind))
    while len(alive := alive[alive + distance < len(kind)]) and len(
        alive := alive[kind[alive] == kind[alive + distance]]
    ):
        other = alive + distance
        need = threshold / (1.0 + threshold) * (size[row[alive]] + size[row[other]]) - 1e-9
        open_pairs = (label[row[alive]] != label[row[other]]) & (np.minimum(left[alive], left[other]) >= need)
        pairs = np.stack(distinct_pairs(row[alive[open_pairs]], row[other[open_pairs]]), 1)
        pairs = pairs[_jaccard(sets, pairs) >= threshold - 1e-9]
        if len(pairs):
            label = _merge_labels(label, pairs)
            alive = alive[_in_mixed_runs(kind, label[row])[alive]]
        distance += 1
    return label


def _merge_labels(label: Ints, pairs: Ints) -> Ints:
    """``label`` after merging the groups of each pair of rows."""
    from scipy.sparse import coo_array  # slow to import, and not needed once the groups are cached
    from scipy.sparse.csgraph import connected_components

    edges = label[pairs].T
    graph = coo_array((np.ones(len(pairs), np.int8), (edges[0], edges[1])), shape=(len(label), len(label)))
    merged: Ints = connected_components(graph, directed=False)[1].astype(np.int64)
    return merged[label]


def _in_mixed_runs(kind: Ints, label: Ints) -> NDArray[np.bool_]:
    """True for entries of sorted ``kind`` in runs with several labels. Other runs have no pair left to compare."""
    run = np.cumsum(np.append(0, kind[1:] != kind[:-1]))
    first = label[np.flatnonzero(np.append(True, kind[1:] != kind[:-1]))]
    return np.isin(run, run[label != first[run]])


def _jaccard(sets: Ragged, pairs: Ints) -> NDArray[np.float64]:
    parts = [_jaccard_chunk(sets, pairs[at : at + CHUNK_PAIRS]) for at in range(0, len(pairs), CHUNK_PAIRS)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _jaccard_chunk(sets: Ragged, pairs: Ints) -> NDArray[np.float64]:
    left, right = sets.take(pairs[:, 0]), sets.take(pairs[:, 1])
    span = int(sets.ids.max(initial=0)) + 1
    common = np.isin(left.rows * span + left.ids, right.rows * span + right.ids, assume_unique=True)
    shared = np.bincount(left.rows[common], minlength=len(pairs))
    return shared / (left.lengths + right.lengths - shared)


def _list_hashes(values: NDArray[np.uint64], offsets: Ints) -> NDArray[np.uint64]:
    """The sum of each list mod 2^64. Values are random, so that equal sums mean equal lists."""
    total = np.concatenate((np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)))
    return total[offsets[1:]] - total[offsets[:-1]]


def _hash(values: NDArray[np.integer[Any]]) -> NDArray[np.uint64]:
    """splitmix64 hashes. Sums and products of them collide by chance only."""
    mixed = values.astype(np.uint64) * _HASH_INCREMENT + _HASH_INCREMENT
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))

"""Where the positives of each query stand among its candidates: all that any metric here needs to know.

Scores are flat, query after query, with CSR offsets: the candidates of query ``q`` are
``scores[offsets[q]:offsets[q + 1]]``. A higher score is better; the sign and the scale do not matter.
Shapes: N candidates, Q queries, P positives.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from negwise.errors import InputError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

CHUNK_PAIRS = 1 << 17
"""Comparisons done at a time, so that their few arrays stay in the cache."""

SORT_BEYOND = 64
"""Comparisons for each candidate beyond which one sort is faster (measured: 30 to 90, by the size of queries)."""


@dataclass(frozen=True)
class Ranks:
    """The standing of every positive, query after query, and the size of every query.

    ``above`` (P,) candidates of its query score higher than a positive and ``tied`` (P,) the same, itself
    included; ``positives`` (Q,) of the ``sizes`` (Q,) candidates of a query are positives.
    """

    above: Ints
    tied: Ints
    positives: Ints
    sizes: Ints

    @property
    def negatives(self) -> Ints:
        return self.sizes - self.positives

    @property
    def scored(self) -> Bools:
        """(Q,) the queries that have a positive and a negative; the others are left out of every metric."""
        return (self.positives > 0) & (self.negatives > 0)

    @property
    def query(self) -> Ints:
        """(P,) the query of each positive."""
        return np.repeat(np.arange(len(self.positives)), self.positives)


def rank(scores: ArrayLike, labels: ArrayLike, offsets: ArrayLike) -> Ranks:
    """Ranks from flat ``scores`` (N,), ``labels`` (N,) of 0 and 1, and ``offsets`` (Q + 1,), arrays or tensors."""
    flat, positive, bounds = _checked(host(scores), host(labels), host(offsets))
    sizes = np.diff(bounds)
    where = np.flatnonzero(positive)
    positives = np.diff(np.searchsorted(where, bounds))
    pairs = int(positives @ sizes)
    stand = _by_comparing if pairs <= SORT_BEYOND * len(flat) else _by_sorting
    above, tied = stand(flat, where, np.repeat(bounds[:-1], positives), np.repeat(sizes, positives))
    return Ranks(above, tied, positives, sizes)


def host(values: Any) -> NDArray[Any]:
    """``values`` as a NumPy array; a tensor is detached and copied from its device, half precision widened."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()
    return np.asarray(values)


def _by_comparing(scores: NDArray[Any], where: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """(above, tied) of the positives at ``where``, each compared with all candidates of its query.

    With few positives in a query this is less work than a sort.
    """
    above, tied = np.empty_like(where), np.ones_like(where)
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, CHUNK_PAIRS), side="right")
    cuts = np.unique(np.append(cuts, len(where)))
    for low, high in pairwise(cuts.tolist()):
        part = slice(low, high)
        first = ends[part] - sizes[part] - (ends[low] - sizes[low])  # of each positive's run of pairs
        pairs = np.arange(ends[high - 1] - ends[low] + sizes[low]) + np.repeat(starts[part] - first, sizes[part])
        others, own = scores[pairs], np.repeat(scores[where[part]], sizes[part])
        above[part] = np.add.reduceat(others > own, first, dtype=np.int64)
        equal = others == own
        if np.count_nonzero(equal) > high - low:
            tied[part] = np.add.reduceat(equal, first, dtype=np.int64)
    return above, tied


def _by_sorting(scores: NDArray[Any], where: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """(above, tied) of the positives at ``where`` from one sort of the candidates of their queries."""
    query_starts, first = np.unique(starts, return_index=True)
    query_sizes = sizes[first]
    query = np.repeat(np.arange(len(query_starts)), query_sizes)
    shift = np.cumsum(query_sizes) - query_sizes
    own = scores[np.arange(len(query)) + (query_starts - shift)[query]]
    order = np.lexsort((own, query))
    ordered, ends = own[order], np.cumsum(query_sizes)
    new_run = np.ones(len(order), dtype=bool)
    new_run[1:] = (ordered[1:] != ordered[:-1]) | (query[1:] != query[:-1])  # query is in order already
    run_starts = np.flatnonzero(new_run)
    run_ends = np.append(run_starts[1:], len(order))
    run = np.empty(len(order), dtype=np.int64)
    run[order] = np.cumsum(new_run) - 1
    place = np.searchsorted(query_starts, starts)
    mine = run[where - starts + shift[place]]
    return ends[place] - run_ends[mine], (run_ends - run_starts)[mine]


def _checked(scores: NDArray[Any], labels: NDArray[Any], offsets: NDArray[Any]) -> tuple[NDArray[Any], Bools, Ints]:
    if scores.ndim != 1 or scores.dtype.kind not in "fiu":
        raise InputError(f"scores must be flat real numbers, (N,); got {scores.dtype} of shape {scores.shape}")
    if labels.shape != scores.shape or labels.dtype.kind not in "fiub":
        raise InputError(
            f"labels must be 0 or 1 for each of the {len(scores)} scores; got {labels.dtype} of shape {labels.shape}"
        )
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise InputError(
            f"offsets must be whole numbers, (Q + 1,), for Q queries; got {offsets.dtype} of shape {offsets.shape}"
        )
    bounds = offsets.astype(np.int64, copy=False)
    if bounds[0] != 0 or bounds[-1] != len(scores) or (np.diff(bounds) < 0).any():
        raise InputError(
            f"offsets must rise from 0 to the number of scores, {len(scores)}; got {bounds[0]} to {bounds[-1]}"
            f"{', not in order' if (np.diff(bounds) < 0).any() else ''}. From group sizes: "
            "numpy.concatenate([[0], numpy.cumsum(sizes)])"
        )
    positive = labels.astype(bool, copy=False)
    if labels.dtype != bool and not np.array_equal(positive, labels):
        wrong = labels[np.flatnonzero(positive != labels)[0]]
        raise InputError(f"labels must be 0 or 1; got {wrong!r}. For graded relevance, choose what counts as 1")
    # min() lets a NaN through and needs no array of its own.
    if len(scores) and np.isnan(scores.min()):
        at = int(np.flatnonzero(np.isnan(scores))[0])
        query = int(np.searchsorted(bounds, at, side="right")) - 1
        raise InputError(
            f"the score of candidate {at - bounds[query]} of query {query} is NaN (score {at} of all). "
            "A NaN has no rank: find out where the model makes it"
        )
    return scores, positive, bounds

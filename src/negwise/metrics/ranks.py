"""Ranks of the positives of each query among its candidates. Every metric is computed from these.

Scores are flat, query after query, with CSR offsets: the candidates of query ``q`` are
``scores[offsets[q]:offsets[q + 1]]``. A higher score is better; the sign and the scale do not matter.
Shapes: N candidates, Q queries, P positives; over a whole catalogue B rows, M items, E excluded (row, item) pairs.
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
"""Comparisons per chunk. The arrays of a chunk fit into the CPU cache."""

CHUNK_SCORES = 1 << 22
"""Scores per chunk. A comparison needs one byte for each score."""

SORT_BEYOND = 64
"""Comparisons per candidate above which one sort is faster (measured: 30 to 90, depending on the size of queries)."""


@dataclass(frozen=True)
class Ranks:
    """The rank of every positive, query after query, and the size of every query.

    ``above`` (P,): candidates of the same query with a higher score. ``tied`` (P,): candidates with the same score,
    the positive included. ``positives`` (Q,): positives of each query. ``sizes`` (Q,): candidates of each query.
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
        """(Q,) True for queries with a positive and a negative. Metrics leave out the others."""
        return (self.positives > 0) & (self.negatives > 0)

    @property
    def query(self) -> Ints:
        """(P,) The query of each positive."""
        return np.repeat(np.arange(len(self.positives)), self.positives)


def rank(scores: ArrayLike, labels: ArrayLike, offsets: ArrayLike) -> Ranks:
    """Ranks from flat ``scores`` (N,), ``labels`` (N,) of 0 and 1, and ``offsets`` (Q + 1,): arrays or tensors."""
    flat, positive, bounds = _check_inputs(_to_numpy(scores), _to_numpy(labels), _to_numpy(offsets))
    sizes = np.diff(bounds)
    where = np.flatnonzero(positive)
    positives = np.diff(np.searchsorted(where, bounds))
    pairs = int(positives @ sizes)
    count = _by_comparing if pairs <= SORT_BEYOND * len(flat) else _by_sorting
    above, tied = count(flat, where, np.repeat(bounds[:-1], positives), np.repeat(sizes, positives))
    return Ranks(above, tied, positives, sizes)


def rank_catalogue(
    scores: Any,
    positives: ArrayLike,
    excluded: ArrayLike | None = None,
    excluded_offsets: ArrayLike | None = None,
) -> Ranks:
    """Ranks of item ``positives[b]`` among all M items of row ``b`` of ``scores`` (B, M), without excluded items.

    ``excluded`` (E,) holds item ids row after row: row ``b`` excludes ``excluded[excluded_offsets[b]:
    excluded_offsets[b + 1]]``, such as the user's other items. A repeated id counts once. The positive is never
    excluded. Scores are compared on their own device: a tensor on a GPU stays there.
    """
    if getattr(scores, "ndim", None) != 2 or scores.shape[1] == 0:
        raise InputError(f"scores must be an array or tensor (B, M); got {getattr(scores, 'shape', scores)!r}")
    rows, items = scores.shape
    target = _item_ids(positives, "positives", items)
    if target.shape != (rows,):
        raise InputError(f"positives must be one item for each of the {rows} rows; got shape {target.shape}")
    own = _scores_at(scores, np.arange(rows), target)
    above, tied = _count_above_and_tied(scores, own)
    sizes = np.full(rows, items, dtype=np.int64)
    if excluded is not None or excluded_offsets is not None:
        row, item = _excluded_pairs(excluded, excluded_offsets, target, items)
        theirs, ours = _scores_at(scores, row, item), own[row]
        above -= np.bincount(row, theirs > ours, minlength=rows).astype(np.int64)
        tied -= np.bincount(row, theirs == ours, minlength=rows).astype(np.int64)
        sizes -= np.bincount(row, minlength=rows)
    return Ranks(above, tied, np.ones(rows, dtype=np.int64), sizes)


def _check_inputs(
    scores: NDArray[Any], labels: NDArray[Any], offsets: NDArray[Any]
) -> tuple[NDArray[Any], Bools, Ints]:
    if scores.ndim != 1 or scores.dtype.kind not in "fiu":
        raise InputError(f"scores must be real numbers of shape (N,); got {scores.dtype} of shape {scores.shape}")
    if labels.shape != scores.shape or labels.dtype.kind not in "fiub":
        raise InputError(
            f"labels must be 0 or 1 for each of the {len(scores)} scores; got {labels.dtype} of shape {labels.shape}"
        )
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise InputError(
            f"offsets must be whole numbers, (Q + 1,) for Q queries; got {offsets.dtype} of shape {offsets.shape}"
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
        raise InputError(f"labels must be 0 or 1; got {wrong!r}. For graded relevance, choose which grades count as 1")
    # The minimum is NaN if any score is, and needs no extra array.
    if len(scores) and np.isnan(scores.min()):
        at = int(np.flatnonzero(np.isnan(scores))[0])
        query = int(np.searchsorted(bounds, at, side="right")) - 1
        raise InputError(
            f"the score of candidate {at - bounds[query]} of query {query} is NaN (score {at} of all). "
            "A NaN has no rank. Check where the model produces it"
        )
    return scores, positive, bounds


def _by_comparing(scores: NDArray[Any], where: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """(above, tied) of the positives at ``where``: each is compared with all candidates of its query.

    With few positives per query this is less work than a sort.
    """
    above, tied = np.empty_like(where), np.ones_like(where)
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.arange(0, ends[-1] if len(ends) else 0, CHUNK_PAIRS), side="right")
    cuts = np.unique(np.append(cuts, len(where)))
    for low, high in pairwise(cuts.tolist()):
        part = slice(low, high)
        first = ends[part] - sizes[part] - (ends[low] - sizes[low])  # first pair of each positive
        pairs = np.arange(ends[high - 1] - ends[low] + sizes[low]) + np.repeat(starts[part] - first, sizes[part])
        others, own = scores[pairs], np.repeat(scores[where[part]], sizes[part])
        above[part] = np.add.reduceat(others > own, first, dtype=np.int64)
        equal = others == own
        if np.count_nonzero(equal) > high - low:
            tied[part] = np.add.reduceat(equal, first, dtype=np.int64)
    return above, tied


def _by_sorting(scores: NDArray[Any], where: Ints, starts: Ints, sizes: Ints) -> tuple[Ints, Ints]:
    """(above, tied) of the positives at ``where``, from one sort of the candidates of their queries."""
    query_starts, first = np.unique(starts, return_index=True)
    query_sizes = sizes[first]
    query = np.repeat(np.arange(len(query_starts)), query_sizes)
    shift = np.cumsum(query_sizes) - query_sizes
    own = scores[np.arange(len(query)) + (query_starts - shift)[query]]
    order = np.lexsort((own, query))
    ordered, ends = own[order], np.cumsum(query_sizes)
    new_run = np.ones(len(order), dtype=bool)
    new_run[1:] = (ordered[1:] != ordered[:-1]) | (query[1:] != query[:-1])  # query is sorted already
    run_starts = np.flatnonzero(new_run)
    run_ends = np.append(run_starts[1:], len(order))
    run = np.empty(len(order), dtype=np.int64)
    run[order] = np.cumsum(new_run) - 1
    place = np.searchsorted(query_starts, starts)
    mine = run[where - starts + shift[place]]
    return ends[place] - run_ends[mine], (run_ends - run_starts)[mine]


def _count_above_and_tied(scores: Any, own: NDArray[Any]) -> tuple[Ints, Ints]:
    """How many scores of each row are above and equal to ``own`` (B,). Operators work in NumPy and torch."""
    rows, items = scores.shape
    above, tied = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    step = max(1, CHUNK_SCORES // items)
    for low in range(0, rows, step):
        part = slice(low, low + step)
        chunk = scores[part]
        nan = _to_numpy((chunk != chunk).any(1))
        if nan.any():
            raise InputError(
                f"row {low + int(np.flatnonzero(nan)[0])} of scores holds a NaN, which has no rank. "
                "Check where the model produces it"
            )
        column = own[part, None]
        if not isinstance(chunk, np.ndarray):
            column = chunk.new_tensor(column)
        above[part] = _to_numpy((chunk > column).sum(1))
        tied[part] = _to_numpy((chunk == column).sum(1))
    return above, tied


def _scores_at(scores: Any, rows: Ints, items: Ints) -> NDArray[Any]:
    """The scores at (rows, items), on the CPU."""
    if isinstance(scores, np.ndarray):
        return scores[rows, items]
    import torch

    place = torch.as_tensor(np.stack([rows, items]), device=scores.device)
    return _to_numpy(scores[place[0], place[1]])


def _excluded_pairs(ids: Any, offsets: Any, target: Ints, items: int) -> tuple[Ints, Ints]:
    """(row, item) of every excluded pair, each once, without the positives."""
    if ids is None or offsets is None:
        raise InputError("excluded and excluded_offsets go together: pass the item ids and the offsets of each row")
    item, bounds = _item_ids(ids, "excluded", items), _to_numpy(offsets)
    if (
        bounds.shape != (len(target) + 1,)
        or bounds.dtype.kind not in "iu"
        or bounds[0] != 0
        or bounds[-1] != len(item)
        or (np.diff(bounds) < 0).any()
    ):
        raise InputError(
            f"excluded_offsets must be {len(target) + 1} non-decreasing whole numbers from 0 to {len(item)}; "
            f"got {bounds.dtype} of shape {bounds.shape}"
        )
    row = np.repeat(np.arange(len(target)), np.diff(bounds))
    once = np.unique((row * items + item)[item != target[row]])
    return once // items, once % items


def _item_ids(values: Any, name: str, items: int) -> Ints:
    ids = _to_numpy(values)
    if ids.size == 0:
        return ids.astype(np.int64).reshape(-1)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= items:
        raise InputError(
            f"{name} must be item ids from 0 to {items - 1}, one-dimensional; got {ids.dtype} of shape {ids.shape} "
            f"from {ids.min()} to {ids.max()}"
        )
    return ids.astype(np.int64, copy=False)


def _to_numpy(values: Any) -> NDArray[Any]:
    """``values`` as a NumPy array. A tensor is detached and copied to the CPU, half precision to float32."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.is_floating_point() and values.element_size() < 4:
            values = values.float()
    return np.asarray(values)

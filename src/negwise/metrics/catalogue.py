"""Ranks over a whole catalogue: one positive in each row of a score matrix, some items left out.

Shapes: B rows (queries), M items, E excluded (row, item) pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from negwise.errors import InputError
from negwise.metrics.ranks import Ints, Ranks, host

CHUNK_SCORES = 1 << 22
"""Scores compared at a time: the comparison needs a byte for each of them."""


def rank_catalogue(
    scores: Any,
    positives: ArrayLike,
    excluded: ArrayLike | None = None,
    excluded_offsets: ArrayLike | None = None,
) -> Ranks:
    """Ranks of item ``positives[b]`` among all M items of row ``b`` of ``scores`` (B, M), less the excluded ones.

    ``excluded`` (E,) holds item ids row after row, those of row ``b`` from ``excluded_offsets[b]`` to
    ``excluded_offsets[b + 1]``: the rest of the user's items. An id may come twice and counts once; the
    positive itself always stays. Counts take place where the scores are, so a tensor on a GPU stays there.
    """
    if getattr(scores, "ndim", None) != 2 or scores.shape[1] == 0:
        raise InputError(f"scores must be an array or tensor (B, M); got {getattr(scores, 'shape', scores)!r}")
    rows, items = scores.shape
    target = _ids(positives, "positives", items)
    if target.shape != (rows,):
        raise InputError(f"positives must be one item for each of the {rows} rows; got shape {target.shape}")
    own = _at(scores, np.arange(rows), target)
    above, tied = _counts(scores, own)
    sizes = np.full(rows, items, dtype=np.int64)
    if excluded is not None or excluded_offsets is not None:
        row, item = _excluded(excluded, excluded_offsets, target, items)
        theirs, ours = _at(scores, row, item), own[row]
        above -= np.bincount(row, theirs > ours, minlength=rows).astype(np.int64)
        tied -= np.bincount(row, theirs == ours, minlength=rows).astype(np.int64)
        sizes -= np.bincount(row, minlength=rows)
    return Ranks(above, tied, np.ones(rows, dtype=np.int64), sizes)


def _counts(scores: Any, own: NDArray[Any]) -> tuple[Ints, Ints]:
    """How many scores of each row lie above and at ``own`` (B,), in plain operators of NumPy or torch."""
    rows, items = scores.shape
    above, tied = np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64)
    step = max(1, CHUNK_SCORES // items)
    for low in range(0, rows, step):
        part = slice(low, low + step)
        chunk = scores[part]
        nan = host((chunk != chunk).any(1))
        if nan.any():
            raise InputError(
                f"row {low + int(np.flatnonzero(nan)[0])} of scores holds a NaN, which has no rank. "
                "Find out where the model makes it"
            )
        column = own[part, None]
        if not isinstance(chunk, np.ndarray):
            column = chunk.new_tensor(column)
        above[part] = host((chunk > column).sum(1))
        tied[part] = host((chunk == column).sum(1))
    return above, tied


def _at(scores: Any, rows: Ints, items: Ints) -> NDArray[Any]:
    """The scores at (rows, items), on the host."""
    if isinstance(scores, np.ndarray):
        return scores[rows, items]
    import torch

    place = torch.as_tensor(np.stack([rows, items]), device=scores.device)
    return host(scores[place[0], place[1]])


def _excluded(ids: Any, offsets: Any, target: Ints, items: int) -> tuple[Ints, Ints]:
    """(row, item) of every excluded pair, once each and without the positives."""
    if ids is None or offsets is None:
        raise InputError("excluded and excluded_offsets come together: pass the ids and the bounds of each row")
    item, bounds = _ids(ids, "excluded", items), host(offsets)
    if (
        bounds.shape != (len(target) + 1,)
        or bounds.dtype.kind not in "iu"
        or bounds[0] != 0
        or bounds[-1] != len(item)
        or (np.diff(bounds) < 0).any()
    ):
        raise InputError(
            f"excluded_offsets must be {len(target) + 1} whole numbers that rise from 0 to {len(item)}; "
            f"got {bounds.dtype} of shape {bounds.shape}"
        )
    row = np.repeat(np.arange(len(target)), np.diff(bounds))
    once = np.unique((row * items + item)[item != target[row]])
    return once // items, once % items


def _ids(values: Any, name: str, items: int) -> Ints:
    ids = host(values)
    if ids.size == 0:
        return ids.astype(np.int64).reshape(-1)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= items:
        raise InputError(
            f"{name} must be item ids from 0 to {items - 1}, flat; got {ids.dtype} of shape {ids.shape} "
            f"from {ids.min()} to {ids.max()}"
        )
    return ids.astype(np.int64, copy=False)

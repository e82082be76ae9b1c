"""The lower bound on mutual information from the InfoNCE loss (eq. 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.theory.reliability import k_as_floats
from negwise.theory.separation import Floats, as_floats, check_broadcast


def mi_bound(loss: Any, k: ArrayLike) -> Floats:
    """The lower bound on mutual information ``log(K + 1) - loss``, in nats (eq. 2). Arguments broadcast.

    ``loss`` is the mean InfoNCE loss over samples with K negatives each: a number, an array, a tensor, or the
    result of `negwise.losses.info_nce`. A loss that is not the mean of eq. 1 (debiased, weighted, corrected by
    log_q, or another loss) gives no bound and raises an `InputError`. So does a result whose rows do not have ``k``
    negatives each (masks, counts, a fractional K). Then the bound is the mean over rows of
    ``mi_bound(info_nce(..., reduction="none").loss, pairs)``.

    >>> float(mi_bound(1.2, 4).round(4))
    0.4094
    """
    if hasattr(loss, "bound_valid"):
        if not loss.bound_valid:
            raise InputError(
                "loss: eq. 2 bounds the mutual information by the mean of eq. 1, not by a loss that is weighted, "
                "summed over rows or corrected by log_q, nor by another loss (bpr, bce, gbce, debiased, decoupled). "
                "Pass the result of negwise.losses.info_nce without weight and log_q."
            )
        _check_pairs(loss.pairs, k)
        loss = loss.loss
    values, negatives = as_floats(loss, "loss"), k_as_floats(k)
    check_broadcast(loss=values, k=negatives)
    return np.log1p(negatives) - values


def _check_pairs(pairs: Any, k: ArrayLike) -> None:
    """Raise an `InputError` unless each row has ``k`` negatives; ``pairs`` (B,) is None if they were not counted."""
    if pairs is None:
        return
    counted, negatives = as_floats(pairs, "pairs"), k_as_floats(k)
    if counted.size and not (negatives == counted).all():
        fewest, most = counted.min(), counted.max()
        rows = f"{fewest:g}" if fewest == most else f"{fewest:g} to {most:g}"
        raise InputError(
            f"k={k!r}, but the rows of this loss have {rows} negatives each. Pass that number; if rows "
            'differ, use reduction="none" and mi_bound(result.loss, result.pairs).mean().'
        )

"""What the loss says about mutual information (eq. 2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.theory.reliability import check_k
from negwise.theory.separation import Floats, as_floats, check_broadcast


def mi_bound(loss: Any, k: ArrayLike) -> Floats:
    """The lower bound on mutual information ``log(K + 1) - loss``, in nats (eq. 2). Arguments broadcast.

    ``loss`` is the InfoNCE loss averaged over samples with K negatives each: a number, an array, a tensor, or what
    `negwise.losses.info_nce` returned. A loss that is not the mean of eq. 1 (debiased, weighted, corrected by log_q,
    another loss altogether) bounds nothing, and is refused; so is a result whose rows were not compared with ``k``
    negatives each (masks, counts, a K between whole numbers). There the bound is a mean over rows, of
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
    values, negatives = as_floats(loss, "loss"), check_k(k)
    check_broadcast(loss=values, k=negatives)
    return np.log1p(negatives) - values


def _check_pairs(pairs: Any, k: ArrayLike) -> None:
    """Every row was compared with ``k`` negatives; ``pairs`` (B,) is None where nobody counted."""
    if pairs is None:
        return
    counted, negatives = as_floats(pairs, "pairs"), check_k(k)
    if counted.size and not (negatives == counted).all():
        fewest, most = counted.min(), counted.max()
        rows = f"{fewest:g}" if fewest == most else f"{fewest:g} to {most:g}"
        raise InputError(
            f"k={k!r}, but the rows of this loss have {rows} negatives each. Pass that number; where rows "
            'differ, take reduction="none" and mi_bound(result.loss, result.pairs).mean().'
        )

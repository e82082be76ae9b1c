"""What the loss says about mutual information (eq. 2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from negwise.theory.reliability import check_k
from negwise.theory.separation import Floats, as_floats


def mi_bound(loss: ArrayLike, k: ArrayLike) -> Floats:
    """The lower bound on mutual information ``log(K + 1) - loss``, in nats (eq. 2). Arguments broadcast.

    ``loss`` is the plain InfoNCE loss, averaged over samples with K negatives each.

    >>> float(mi_bound(1.2, 4).round(4))
    0.4094
    """
    return np.log1p(check_k(k)) - as_floats(loss, "loss")

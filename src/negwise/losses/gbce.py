"""Generalised binary cross-entropy (Petrov and Macdonald, "gSASRec", RecSys 2023): BCE freed of overconfidence.

Training on K sampled negatives out of a catalogue inflates predicted probabilities. A power ``beta`` on the
positive's probability takes that back; ``t`` says how much of it.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from negwise.errors import InputError
from negwise.losses.from_scores import Ragged, from_scores
from negwise.losses.result import LossResult


def gbce(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    catalogue: int,
    t: float = 0.75,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """``-(beta log sigmoid(f+) + sum_i log(1 - sigmoid(f-_i))) / (K + 1)``, ``positive`` (B,), ``negatives`` (B, K).

    ``beta = alpha (t (1 - 1/alpha) + 1/alpha) = t (alpha - 1) + 1`` with the sampling rate
    ``alpha = K / (catalogue - 1)``, K being the row's own number of negatives.
    ``t = 0`` is BCE, ``t = 1`` is fully calibrated; the paper's choice is .75.

    >>> import torch
    >>> scores = torch.tensor([0.0]), torch.tensor([[0.0]])
    >>> round(float(gbce(*scores, catalogue=101, t=1.0).loss), 4)  # beta = 0.01
    0.35
    """
    if not catalogue >= 2:  # nor NaN
        raise InputError(f"catalogue={catalogue}; expected the number of items, at least 2")
    if not 0 <= t <= 1:
        raise InputError(f"t={t}; expected a share from 0 (plain BCE) to 1 (fully calibrated)")

    def formula(s: Ragged) -> Tensor:
        if s.negatives.shape[1] > catalogue - 1 and (most := int(s.pairs.max())) > catalogue - 1:
            raise InputError(
                f"{most} negatives out of a catalogue of {catalogue}: expected at most {catalogue - 1}, "
                "a sampling rate of 1"
            )
        beta = t * (s.pairs / (catalogue - 1) - 1) + 1
        return (beta * F.softplus(-s.positive) + s.sum(F.softplus(s.negatives))) / (s.pairs + 1)

    return from_scores(formula, "gbce", positive, negatives, mask, weight, reduction, stats)

"""Binary cross-entropy: the positive is labelled 1, each negative 0."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from negwise.losses.from_scores import Ragged, from_scores
from negwise.losses.result import LossResult


def bce(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """``-(log sigmoid(f+) + sum_i log(1 - sigmoid(f-_i))) / (K + 1)``, ``positive`` (B,), ``negatives`` (B, K).

    K is the row's own number of negatives. A row without negatives has loss 0: a label that has nothing to be
    told from teaches nothing but to score high.

    >>> import torch
    >>> round(float(bce(torch.tensor([0.0]), torch.tensor([[0.0]])).loss), 4)
    0.6931
    """

    def formula(s: Ragged) -> Tensor:
        return (F.softplus(-s.positive) + s.sum(F.softplus(s.negatives))) / (s.pairs + 1)

    return from_scores(formula, "bce", positive, negatives, mask, weight, reduction, stats)

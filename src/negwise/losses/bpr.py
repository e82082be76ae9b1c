"""Bayesian personalised ranking (Rendle et al., 2009): each pair is a comparison of its own."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from negwise.losses.from_scores import Ragged, from_scores
from negwise.losses.result import LossResult


def bpr(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """``-(1/K) sum_i log sigmoid(f+ - f-_i)``, ``positive`` (B,), ``negatives`` (B, K); K is the row's own number.

    With K = 1 it equals eq. 1.

    >>> import torch
    >>> round(float(bpr(torch.tensor([1.0]), torch.tensor([[0.0]])).loss), 4)
    0.3133
    """

    def formula(s: Ragged) -> Tensor:
        return -s.sum(F.logsigmoid(s.positive[:, None] - s.negatives)) / s.pairs.clamp(min=1)

    return from_scores(formula, "bpr", positive, negatives, mask, weight, reduction, stats)

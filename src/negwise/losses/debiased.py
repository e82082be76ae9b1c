"""The debiased contrastive loss (Chuang et al., "Debiased contrastive learning", NeurIPS 2020).

Both this and the decoupled loss are called DCL in print; here each goes by its full name.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.losses.from_scores import Ragged, from_scores
from negwise.losses.result import LossResult


def debiased(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    tau_plus: float,
    min_score: float,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """``-log(e^f+ / (e^f+ + K g))``, ``g = max((mean_i e^f-_i - tau_plus e^f+) / (1 - tau_plus), e^min_score)``.

    ``positive`` (B,), ``negatives`` (B, K); K is the row's own number. ``tau_plus``, in [0, 1), is the share of
    "negatives" that are in truth positives; with 0 and no floor this is eq. 1. ``min_score`` is the smallest value that
    a score can take, below which g cannot honestly fall: ``-1 / temperature`` for cosines over a temperature,
    ``-math.inf`` for scores without a bound, where g may fall to 0.

    >>> scores = torch.tensor([1.0]), torch.tensor([[0.0, 2.0]])
    >>> round(float(debiased(*scores, tau_plus=0.1, min_score=-10.0).loss), 4)
    1.4367
    """
    if not 0 <= tau_plus < 1:
        raise InputError(f"tau_plus={tau_plus}; expected a share from 0 to below 1")
    if math.isnan(min_score) or min_score == math.inf:
        raise InputError(
            f"min_score={min_score}; expected a number, such as -1 / temperature for cosines, or -math.inf"
        )

    def formula(s: Ragged) -> Tensor:
        # All relative to e^f+ and as logarithms, so that nothing overflows.
        mean = s.log_ratio() - s.pairs.clamp(min=1).log()
        floor = min_score - s.positive
        if tau_plus:
            spent = mean <= math.log(tau_plus)
            part = tau_plus * torch.exp(-mean.masked_fill(spent, 1.0))
            mean = torch.where(spent, -torch.inf, mean + torch.log1p(-part) - math.log1p(-tau_plus))
        logit = torch.maximum(mean, floor) + s.pairs.clamp(min=1).log()
        return torch.logaddexp(logit, torch.zeros_like(logit))

    return from_scores(formula, "debiased", positive, negatives, mask, weight, reduction, stats)

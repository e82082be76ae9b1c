"""The decoupled contrastive loss (Yeh et al., "Decoupled contrastive learning", ECCV 2022).

Both this and the debiased loss are called DCL in print; here each goes by its full name.
"""

from __future__ import annotations

from torch import Tensor

from negwise.losses.from_scores import Ragged, from_scores
from negwise.losses.result import LossResult


def decoupled(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossResult:
    """``-f+ + log sum_i e^f-_i``: eq. 1 without the positive in the denominator.

    ``positive`` (B,), ``negatives`` (B, K). Without it an easy positive does not dampen the gradient of its
    negatives. The loss may be below 0.

    >>> import torch
    >>> round(float(decoupled(torch.tensor([2.0]), torch.tensor([[0.0, 0.0]])).loss), 4)  # log 2 - 2
    -1.3069
    """

    def formula(s: Ragged) -> Tensor:
        return s.log_ratio()

    return from_scores(formula, "decoupled", positive, negatives, mask, weight, reduction, stats)

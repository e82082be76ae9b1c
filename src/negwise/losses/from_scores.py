"""What the losses on scores have in common: check, compute row by row, count wins, reduce.

Shapes: B rows, K negatives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from negwise.losses.checks import check_scores, compute_dtype, name_the_bad, only_tensors, same_device
from negwise.losses.reference import won
from negwise.losses.result import LossResult, Rows, check_reduction, finish
from negwise.losses.visible import EVERYTHING, visible


class Ragged(NamedTuple):
    """Scores of which each row has its own number, in float32 or float64."""

    positive: Tensor  # (B,)
    negatives: Tensor  # (B, K), anything where not seen
    seen: Tensor  # (B, K) of bool
    pairs: Tensor  # (B,) in the scores' dtype: how many each row sees

    def sum(self, terms: Tensor) -> Tensor:
        """Sum (B, K) over the negatives that a row sees."""
        return terms.masked_fill(~self.seen, 0).sum(1)

    def log_ratio(self) -> Tensor:
        """``log(sum_i e^f-_i / e^f+)`` of each row, from differences so that large scores do not cancel."""
        ahead = (self.negatives - self.positive[:, None]).masked_fill(~self.seen, -torch.inf)
        # A row without negatives would be log 0, whose gradient is NaN: log 1 takes its place, and counts nothing.
        blank = torch.where(self.pairs == 0, 0.0, -torch.inf)
        return torch.cat([ahead, blank[:, None]], 1).logsumexp(1)


def from_scores(
    formula: Callable[[Ragged], Tensor],
    name: str,
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    stats: bool,
) -> LossResult:
    """Apply ``formula`` (scores -> (B,)); a row without negatives has loss 0 and no gradient, whatever it says."""
    only_tensors({"mask": mask, "weight": weight})
    given = {"positive": positive, "negatives": negatives}
    dtype = compute_dtype(given)
    same_device(given)
    check_scores(positive, negatives)
    above = positive.to(dtype)
    weight = check_reduction(reduction, weight, above)
    rule = visible(negatives.shape[0], negatives.shape[1], above, mask=mask)
    below = negatives[:, : rule.width].to(dtype)
    allowed = rule.allowed(EVERYTHING, EVERYTHING)
    seen = torch.ones_like(below, dtype=torch.bool) if allowed is None else allowed
    below = below.masked_fill(~seen, 0)  # what is masked may be anything, NaN too
    pairs = seen.sum(1)
    with torch.autocast(positive.device.type, enabled=False):
        loss = formula(Ragged(above, below, seen, pairs.to(dtype)))
    loss = loss.masked_fill(pairs == 0, 0)
    name_the_bad((loss,), given)
    rows = Rows(loss, won(above, below, seen), pairs) if stats else Rows(loss, None, None)
    return finish(rows, weight, reduction, "reference", why=f"{name} is another loss")

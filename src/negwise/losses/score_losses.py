"""Losses on scores other than eq. 1: BPR, BCE, gBCE, the decoupled and the debiased contrastive loss.

The papers call both the debiased and the decoupled loss DCL; here each has its full name.

Shapes: B rows, K negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from negwise.errors import InputError
from negwise.losses.checks import check_finite, check_same_device, check_scores, check_tensors, compute_dtype
from negwise.losses.masking import ALL, make_masking
from negwise.losses.reference import count_hits, count_wins
from negwise.losses.result import LossWithoutBound, RowLosses, check_reduction, reduce_rows


def bpr(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossWithoutBound:
    """Bayesian personalised ranking: ``-(1/K) sum_i log sigmoid(f+ - f-_i)`` (Rendle et al., 2009).

    ``positive`` (B,), ``negatives`` (B, K); K is the row's own number of negatives. Each pair is a separate comparison.
    With K = 1 it equals eq. 1.

    >>> import torch
    >>> round(float(bpr(torch.tensor([1.0]), torch.tensor([[0.0]])).loss), 4)
    0.3133
    """

    def formula(s: ScoreRows) -> Tensor:
        return -s.sum(F.logsigmoid(s.positive[:, None] - s.negatives)) / s.pairs.clamp(min=1)

    return loss_from_scores(formula, positive, negatives, mask, weight, reduction, stats)


def bce(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossWithoutBound:
    """Binary cross-entropy: ``-(log sigmoid(f+) + sum_i log(1 - sigmoid(f-_i))) / (K + 1)``.

    ``positive`` (B,) has label 1, ``negatives`` (B, K) have label 0; K is the row's own number of negatives. A row
    without negatives has loss 0: a positive alone would only teach the model to give high scores.

    >>> import torch
    >>> round(float(bce(torch.tensor([0.0]), torch.tensor([[0.0]])).loss), 4)
    0.6931
    """

    def formula(s: ScoreRows) -> Tensor:
        return (F.softplus(-s.positive) + s.sum(F.softplus(s.negatives))) / (s.pairs + 1)

    return loss_from_scores(formula, positive, negatives, mask, weight, reduction, stats)


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
) -> LossWithoutBound:
    """Generalised BCE: ``-(beta log sigmoid(f+) + sum_i log(1 - sigmoid(f-_i))) / (K + 1)``.

    ``positive`` (B,), ``negatives`` (B, K) (Petrov and Macdonald, "gSASRec", RecSys 2023). Training on K sampled
    negatives out of a catalogue makes predicted probabilities too high. The power ``beta`` on the positive's
    probability corrects that, by the degree ``t``:

    ``beta = alpha (t (1 - 1/alpha) + 1/alpha) = t (alpha - 1) + 1`` with the sampling rate
    ``alpha = K / (catalogue - 1)``; K is the row's own number of negatives.
    ``t = 0`` is BCE, ``t = 1`` is fully calibrated; the paper's choice is .75.

    >>> import torch
    >>> scores = torch.tensor([0.0]), torch.tensor([[0.0]])
    >>> round(float(gbce(*scores, catalogue=101, t=1.0).loss), 4)  # beta = 0.01
    0.35
    """
    if not catalogue >= 2:  # also catches NaN
        raise InputError(f"catalogue={catalogue}; expected the number of items, at least 2")
    if not 0 <= t <= 1:
        raise InputError(f"t={t}; expected a share from 0 (plain BCE) to 1 (fully calibrated)")

    def formula(s: ScoreRows) -> Tensor:
        if s.negatives.shape[1] > catalogue - 1 and (most := int(s.pairs.max())) > catalogue - 1:
            raise InputError(
                f"{most} negatives out of a catalogue of {catalogue}: expected at most {catalogue - 1}, "
                "a sampling rate of 1"
            )
        beta = t * (s.pairs / (catalogue - 1) - 1) + 1
        return (beta * F.softplus(-s.positive) + s.sum(F.softplus(s.negatives))) / (s.pairs + 1)

    return loss_from_scores(formula, positive, negatives, mask, weight, reduction, stats)


def decoupled(
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None = None,
    *,
    weight: Tensor | None = None,
    reduction: str = "mean",
    stats: bool = True,
) -> LossWithoutBound:
    """The decoupled contrastive loss ``-f+ + log sum_i e^f-_i``: eq. 1 without the positive in the denominator.

    ``positive`` (B,), ``negatives`` (B, K) (Yeh et al., "Decoupled contrastive learning", ECCV 2022). So an easy
    positive does not weaken the gradient of its negatives. The loss may be below 0.

    >>> import torch
    >>> round(float(decoupled(torch.tensor([2.0]), torch.tensor([[0.0, 0.0]])).loss), 4)  # log 2 - 2
    -1.3069
    """

    def formula(s: ScoreRows) -> Tensor:
        return s.log_ratio()

    return loss_from_scores(formula, positive, negatives, mask, weight, reduction, stats)


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
) -> LossWithoutBound:
    """The debiased contrastive loss ``-log(e^f+ / (e^f+ + K g))`` (Chuang et al., NeurIPS 2020).

    ``g = max((mean_i e^f-_i - tau_plus e^f+) / (1 - tau_plus), e^min_score)``, ``positive`` (B,), ``negatives`` (B, K);
    K is the row's own number of negatives. ``tau_plus``, in [0, 1), is the share of "negatives" that are really
    positives. With 0 and no lower bound this is eq. 1. ``min_score`` is the smallest possible score, which bounds g
    from below: ``-1 / temperature`` for cosines divided by a temperature, ``-math.inf`` for unbounded scores, where g
    may fall to 0. The paper is "Debiased contrastive learning".

    >>> scores = torch.tensor([1.0]), torch.tensor([[0.0, 2.0]])
    >>> round(float(debiased(*scores, tau_plus=0.1, min_score=-10.0).loss), 4)
    1.4367
    """
    if not 0 <= tau_plus < 1:
        raise InputError(f"tau_plus={tau_plus}; expected a share, at least 0 and below 1")
    if math.isnan(min_score) or min_score == math.inf:
        raise InputError(
            f"min_score={min_score}; expected a number, such as -1 / temperature for cosines, or -math.inf"
        )

    def formula(s: ScoreRows) -> Tensor:
        # All terms are relative to e^f+ and in logs, so that nothing overflows.
        mean = s.log_ratio() - s.pairs.clamp(min=1).log()
        floor = min_score - s.positive
        if tau_plus:
            spent = mean <= math.log(tau_plus)
            part = tau_plus * torch.exp(-mean.masked_fill(spent, 1.0))
            mean = torch.where(spent, -torch.inf, mean + torch.log1p(-part) - math.log1p(-tau_plus))
        logit = torch.maximum(mean, floor) + s.pairs.clamp(min=1).log()
        return torch.logaddexp(logit, torch.zeros_like(logit))

    return loss_from_scores(formula, positive, negatives, mask, weight, reduction, stats)


class ScoreRows(NamedTuple):
    """The scores of a batch in float32 or float64. Rows may differ in their number of negatives."""

    positive: Tensor  # (B,)
    negatives: Tensor  # (B, K), any value where not allowed
    allowed: Tensor  # (B, K) of bool
    pairs: Tensor  # (B,) in the scores' dtype: the number of negatives of each row

    def sum(self, terms: Tensor) -> Tensor:
        """The sum of ``terms`` (B, K) over the negatives of each row, (B,)."""
        return terms.masked_fill(~self.allowed, 0).sum(1)

    def log_ratio(self) -> Tensor:
        """``log(sum_i e^f-_i / e^f+)`` of each row, from score differences, so that large scores do not cancel."""
        ahead = (self.negatives - self.positive[:, None]).masked_fill(~self.allowed, -torch.inf)
        # A row without negatives would give log 0, whose gradient is NaN. It gets log 1; its loss is set to 0 later.
        blank = torch.where(self.pairs == 0, 0.0, -torch.inf)
        return torch.cat([ahead, blank[:, None]], 1).logsumexp(1)


def loss_from_scores(
    formula: Callable[[ScoreRows], Tensor],
    positive: Tensor,
    negatives: Tensor,
    mask: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    stats: bool,
) -> LossWithoutBound:
    """Check the arguments, apply ``formula`` (scores -> (B,)), count wins and hits, and reduce.

    A row without negatives has loss 0 and no gradient, whatever ``formula`` gives.
    """
    check_tensors({"mask": mask, "weight": weight})
    given = {"positive": positive, "negatives": negatives}
    dtype = compute_dtype(given)
    check_same_device(given)
    check_scores(positive, negatives)
    above = positive.to(dtype)
    weight = check_reduction(reduction, weight, above)
    rule = make_masking(negatives.shape[0], negatives.shape[1], above, mask=mask)
    below = negatives[:, : rule.width].to(dtype)
    allowed = rule.allowed(ALL, ALL)
    allowed = torch.ones_like(below, dtype=torch.bool) if allowed is None else allowed
    below = below.masked_fill(~allowed, 0)  # masked scores may hold any value, also NaN
    pairs = allowed.sum(1)
    with torch.autocast(positive.device.type, enabled=False):
        loss = formula(ScoreRows(above, below, allowed, pairs.to(dtype)))
    loss = loss.masked_fill(pairs == 0, 0)
    check_finite((loss,), given)
    rows = RowLosses(loss)
    if stats:
        rows = RowLosses(loss, count_wins(above, below, allowed), pairs, count_hits(above, below, allowed))
    return LossWithoutBound(reduce_rows(rows.loss, weight, reduction), *rows.counts)

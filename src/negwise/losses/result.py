"""What a loss returns: the loss, and the counts that merge over batches and ranks.

Shapes: B rows.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from negwise.errors import InputError

FINE = 2.0**30
"""Logarithms are rounded to whole parts of this."""


class RowLosses(NamedTuple):
    """What an implementation computes, per row and not reduced."""

    loss: Tensor  # (B,) the loss of each row
    wins: Tensor | None = None  # (B,) float64: negatives below the positive; a tie is half a win
    pairs: Tensor | None = None  # (B,) int64: negatives of the row
    hits: Tensor | None = None  # (B,) float64: 1 / (1 + ties) if no negative is above the positive, else 0

    @property
    def counts(self) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
        """``wins``, ``pairs``, ``hits`` and ``rows`` (B,) int64, which is 1 for a row with negatives."""
        rows = None if self.pairs is None else (self.pairs > 0).long()
        return self.wins, self.pairs, self.hits, rows


class LossResult(NamedTuple):
    """The mean of eq. 1: ``result = info_nce(...)``, ``result.loss.backward()``.

    A plain named tuple, so that tree_map, DDP, Fabric and accelerate rebuild it with all its fields.

    - ``loss``: reduced as requested; float32 for half precision inputs.
    - ``wins`` (B,) and ``pairs`` (B,): negatives below the positive, a tie counting half, and negatives of each row.
    - ``hits`` (B,): 1 for a row whose positive is above all of its negatives, 1 / (1 + ties) where some tie with it,
      else 0; what a row without negatives has is 0. ``rows`` (B,): 1 for a row with negatives, else 0.

    All four are None with ``stats=False``. Their sums merge exactly over batches and ranks.
    """

    loss: Tensor
    wins: Tensor | None = None
    pairs: Tensor | None = None
    hits: Tensor | None = None
    rows: Tensor | None = None

    @property
    def win_rate(self) -> Tensor | None:
        """``wins.sum() / pairs.sum()``, the share of (positive, negative) pairs that the positive wins.

        A tie is half a win, so this estimates AUC at any K. NaN without pairs; None with ``stats=False``.

        Scores tie where their sums round alike. Equal vectors need not tie: the positive's score is a sum of its own,
        the negatives' scores come from matrix products. So a model that gives everything one vector may have any win
        rate, beside a loss of ``log(K + 1)``.
        """
        return _ratio(self.wins, self.pairs)

    @property
    def hit_rate(self) -> Tensor | None:
        """``hits.sum() / rows.sum()``, the share of rows whose positive is above all of its negatives.

        It estimates the reliability P(K) of the model (eq. 4). NaN without rows; None with ``stats=False``.
        """
        return _ratio(self.hits, self.rows)

    @property
    def bound_valid(self) -> bool:
        """Whether ``log(K + 1) - loss`` bounds the mutual information (eq. 2): yes."""
        return True


class LossWithoutBound(NamedTuple):
    """A loss that is not the mean of eq. 1, so that eq. 2 does not hold for it. Fields as in `LossResult`."""

    loss: Tensor
    wins: Tensor | None = None
    pairs: Tensor | None = None
    hits: Tensor | None = None
    rows: Tensor | None = None

    @property
    def win_rate(self) -> Tensor | None:
        """As `LossResult.win_rate`."""
        return _ratio(self.wins, self.pairs)

    @property
    def hit_rate(self) -> Tensor | None:
        """As `LossResult.hit_rate`."""
        return _ratio(self.hits, self.rows)

    @property
    def bound_valid(self) -> bool:
        """Whether ``log(K + 1) - loss`` bounds the mutual information (eq. 2): no."""
        return False


def make_result(
    rows: RowLosses, weight: Tensor | None, reduction: str, corrected: bool = False
) -> LossResult | LossWithoutBound:
    """Reduce the rows. The result is a `LossWithoutBound` if the rows are ``corrected``, weighted or summed."""
    kind = LossWithoutBound if corrected or weight is not None or reduction == "sum" else LossResult
    return kind(reduce_rows(rows.loss, weight, reduction), *rows.counts)


def reduce_rows(loss: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """``mean`` is ``sum(w * loss) / sum(w)`` over all B rows (w = 1 without weights), ``sum`` its numerator."""
    if weight is not None:
        loss = loss * weight
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if weight is None else loss.sum() / weight.sum()


def check_reduction(reduction: str, weight: Tensor | None, like: Tensor, check_values: bool = True) -> Tensor | None:
    """The weights in the loss's dtype, checked: one per row, none negative, not all 0 for a mean.

    ``check_values=False`` does not read the values, because that would wait for a GPU. A bad weight becomes NaN, and so
    does the loss.
    """
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"reduction={reduction!r}; expected 'mean', 'sum' or 'none'")
    if weight is None:
        return None
    if weight.shape != like.shape:
        raise InputError(f"weight has shape {tuple(weight.shape)}; expected one per row, {tuple(like.shape)}")
    if weight.device != like.device:
        raise InputError(f"weight is on {weight.device}, the rest on {like.device}: weight.to({str(like.device)!r})")
    weight = weight.to(like.dtype)
    values = weight.detach()
    if not check_values:
        return weight.where((values >= 0) & (values < torch.inf), torch.nan)
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        bad = int((~torch.isfinite(values) | (values < 0)).nonzero()[0])
        raise InputError(f"weight[{bad}] is {float(values[bad])}; expected finite numbers >= 0")
    if reduction == "mean" and not bool(values.sum() > 0):
        raise InputError(
            "all weights are 0, expected a positive one for a mean; pass another weight or reduction='sum'"
        )
    return weight


def log_k1(pairs: Tensor) -> Tensor:
    """log(K + 1) of each row from its ``pairs`` (B,), as float64, rounded so that any order adds up to the same bits.

    A rule for K looks at the sum, which must be the same on any number of ranks.
    """
    return (pairs.double().log1p() * FINE).round() / FINE


def _ratio(won: Tensor | None, of: Tensor | None) -> Tensor | None:
    return None if won is None or of is None else won.sum() / of.sum()

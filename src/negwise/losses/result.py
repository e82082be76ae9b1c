"""What a loss returns: ``(loss, win_rate)``, and beside them the counts that merge over batches and ranks.

Shapes: B rows.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from negwise.errors import InputError

Reduction = Literal["mean", "sum", "none"]


class RowLosses(NamedTuple):
    """What an implementation computes: everything per row, nothing reduced yet."""

    loss: Tensor  # (B,) the loss of each row
    wins: Tensor | None  # (B,) float64: negatives below the positive, a tie is half a win
    pairs: Tensor | None  # (B,) int64: negatives that the row was compared with


class _More(NamedTuple):
    """What a result knows beside its two fields."""

    wins: Tensor | None
    pairs: Tensor | None
    impl: str
    why: str


class _Pair(NamedTuple):
    loss: Tensor
    win_rate: Tensor | None


class LossResult(_Pair):
    """``loss, win_rate = info_nce(...)``, with more to ask the result for.

    - ``loss``: reduced as asked; float32 for half precision inputs.
    - ``win_rate``: ``wins.sum() / pairs.sum()``, the share of (positive, negative) pairs that the positive
      wins, a tie being half a win: an estimate of AUC at any K. NaN where there is no pair at all; None with
      ``stats=False``. Scores tie where their sums round alike, which those of equal vectors need not: the positive's is
      a sum of its own, the negatives' come from matrix products. A model that gives everything one vector may so have
      any win rate, beside a loss of ``log(K + 1)``.
    - ``wins`` (B,) and ``pairs`` (B,): the counts per row. Sums of them merge over batches and ranks exactly.
    - ``impl``: which implementation did the work.
    - ``bound_valid``: whether ``log(K + 1) - loss`` bounds the mutual information (eq. 2); ``why`` says why not.
    """

    bound_valid: ClassVar[bool] = True
    _more: _More | None

    def __new__(cls, loss: Tensor, win_rate: Tensor | None, more: _More | None = None) -> LossResult:
        self = super().__new__(cls, loss, win_rate)
        self._more = more
        return self

    def __getnewargs__(self) -> tuple[Tensor, Tensor | None, _More | None]:
        return self.loss, self.win_rate, self._more

    @property
    def wins(self) -> Tensor | None:
        return self._asked("wins").wins

    @property
    def pairs(self) -> Tensor | None:
        return self._asked("pairs").pairs

    @property
    def impl(self) -> str:
        return self._asked("impl").impl

    @property
    def why(self) -> str:
        if self._more is None:
            return "" if self.bound_valid else "this is another loss, or a corrected one"
        return self._more.why

    def _asked(self, name: str) -> _More:
        if self._more is None:
            raise InputError(
                f"result.{name} is gone: something on its way from the loss (Fabric, DDP, accelerate, tree_map) made "
                f"this result anew from (loss, win_rate). Take {name} where the loss is computed, and pass it on"
            )
        return self._more


class CorrectedLoss(LossResult):
    """A loss that is not the mean of eq. 1, so that eq. 2 says nothing about it."""

    bound_valid: ClassVar[bool] = False


def make_result(rows: RowLosses, weight: Tensor | None, reduction: str, impl: str, why: str = "") -> LossResult:
    """Reduce the rows. ``why`` names what makes the loss other than eq. 1, where something does."""
    if weight is not None:
        why = why or "its rows are weighted"
    if reduction == "sum":
        why = why or "it is a sum over rows"
    result = CorrectedLoss if why else LossResult
    more = _More(rows.wins, rows.pairs, impl, why)
    return result(reduce_rows(rows.loss, weight, reduction), win_rate(rows), more)


def win_rate(rows: RowLosses) -> Tensor | None:
    """Share of all pairs that the positive wins; NaN where there is no pair."""
    if rows.wins is None or rows.pairs is None:
        return None
    return rows.wins.sum() / rows.pairs.sum()


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
    """The weights in the loss's dtype, checked: one per row, none negative, not all zero under a mean.

    Without ``check_values`` no value is read, which on a GPU would wait for it: what is wrong becomes NaN, and so the
    loss.
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
        raise InputError("all weights are zero, so there is no mean; pass reduction='sum' or a positive weight")
    return weight

"""Which negatives count for each row: counts, masks and equal ids, block by block.

Shapes: B rows, K negatives per row (or shared by all rows), R x C a block of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.errors import InputError

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)
ALL = slice(None)
LOG_Q_TOLERANCE = 1e-3
"""A log-probability above this is not a rounding error of 0."""


@dataclass(frozen=True)
class Masking:
    """Row b has negative j if all given conditions hold. ``log_q`` corrects its score.

    - ``counts`` (B,): j is below ``counts[b]``. This costs nothing: blocks below the smallest count need no mask,
      blocks above the largest are never read.
    - ``mask`` (B, K): True where the negative is real.
    - ``row_ids`` (B,) and ``key_ids`` (K,) or (B, K): the negative has another id than the row's positive.
    - ``log_q`` (K,) or (B, K): log-probability that the sampler draws that negative.
    """

    width: int
    counts: Tensor | None = None
    mask: Tensor | None = None
    row_ids: Tensor | None = None
    key_ids: Tensor | None = None
    log_q: Tensor | None = None
    min_count: int = 0
    exclude_diagonal: bool = False
    """In-batch negatives: row b does not have negative b. Both ids are then the row numbers."""

    @property
    def partial(self) -> bool:
        """Whether a row may have fewer than all negatives."""
        return self.counts is not None or self.mask is not None or self.row_ids is not None

    def allowed(self, rows: slice, cols: slice) -> Tensor | None:
        """The mask of a block, bool (R, C), or None if it is all True."""
        conditions: list[Tensor] = []
        start, stop, _ = cols.indices(self.width)
        if self.counts is not None and stop > self.min_count:
            column = torch.arange(start, stop, device=self.counts.device)
            conditions.append(column < self.counts[rows, None])
        if self.mask is not None:
            conditions.append(self.mask[rows, cols])
        if self.row_ids is not None and self.key_ids is not None:
            ids = self.key_ids[cols] if self.key_ids.dim() == 1 else self.key_ids[rows, cols]
            conditions.append(ids != self.row_ids[rows, None])
        if not conditions:
            return None
        allowed = conditions[0]
        for condition in conditions[1:]:
            allowed = allowed & condition
        return allowed

    def count_pairs(self, rows: int, device: torch.device) -> Tensor:
        """The number of negatives of each row, (B,) int64, from the dense mask."""
        allowed = self.allowed(ALL, ALL)
        if allowed is None:
            return torch.full((rows,), self.width, device=device)
        return allowed.sum(1)

    def log_q_block(self, rows: slice, cols: slice) -> Tensor | None:
        """The block of ``log_q``, (C,) or (R, C)."""
        if self.log_q is None:
            return None
        return self.log_q[cols] if self.log_q.dim() == 1 else self.log_q[rows, cols]


def make_masking(
    rows: int,
    width: int,
    like: Tensor,
    *,
    mask: Tensor | None = None,
    row_ids: Tensor | None = None,
    key_ids: Tensor | None = None,
    log_q: Tensor | None = None,
    exclude_diagonal: bool = False,
    check_values: bool = True,
) -> Masking:
    """A `Masking`, checked against ``rows`` x ``width`` and the device and dtype of ``like``.

    ``check_values=False`` reads no values, because that would wait for a GPU. Then counts are not checked.
    """
    for name, tensor in (("mask", mask), ("positive_ids", row_ids), ("ids", key_ids), ("log_q", log_q)):
        if tensor is not None and tensor.device != like.device:
            raise InputError(
                f"{name} is on {tensor.device}, the rest on {like.device}: {name}.to({str(like.device)!r})"
            )
    counts, min_count, most = None, width, width
    if mask is not None and mask.dtype in INTEGERS and mask.dim() == 1:
        counts, mask = _counts(mask, rows, width, check_values), None
        if not check_values:
            min_count = 0
        elif rows:
            min_count, most = int(counts.min()), int(counts.max())
    _check_mask(mask, rows, width)
    _check_log_q(log_q, rows, width)
    masking = Masking(
        width=most,
        counts=counts,
        mask=None if mask is None else mask[:, :most],
        row_ids=row_ids,
        key_ids=None if key_ids is None else key_ids[..., :most],
        log_q=None if log_q is None else log_q.to(like.dtype)[..., :most],
        min_count=min_count,
        exclude_diagonal=exclude_diagonal,
    )
    if check_values:
        _check_probabilities(masking)
    return masking


def _counts(mask: Tensor, rows: int, width: int, check_values: bool) -> Tensor:
    if mask.shape != (rows,):
        raise InputError(f"mask as counts has shape {tuple(mask.shape)}; expected one per row, ({rows},)")
    if not check_values:  # of a GPU, whose kernels check counts, or of a graph, where a count above the width is all
        return mask
    counts = mask.to(torch.int64)
    bad = (counts < 0) | (counts > width)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        raise InputError(
            f"mask as counts has {int(counts[row])} in row {row}; expected 0..{width}, the number of negatives"
        )
    return counts


def _check_mask(mask: Tensor | None, rows: int, width: int) -> None:
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise InputError(
            f"mask has dtype {mask.dtype} and shape {tuple(mask.shape)}; expected bool ({rows}, {width}), True where "
            f"the negative is real (type mask.bool()), or an integer count per row ({rows},)"
        )
    if mask.shape != (rows, width):
        raise InputError(f"mask has shape {tuple(mask.shape)}; expected ({rows}, {width}), rows x negatives")


def _check_log_q(log_q: Tensor | None, rows: int, width: int) -> None:
    if log_q is None:
        return
    if not log_q.is_floating_point():
        raise InputError(f"log_q has dtype {log_q.dtype}; expected logs of probabilities, a floating type")
    if log_q.shape not in ((width,), (rows, width)):
        raise InputError(f"log_q has shape {tuple(log_q.shape)}; expected ({width},) or ({rows}, {width})")
    if log_q.requires_grad:
        raise InputError("log_q requires a gradient, and its correction has none; pass log_q.detach()")


def _check_probabilities(masking: Masking) -> None:
    """Check that no probability is above 1, except for masked negatives. NaN and -inf show up in the loss."""
    log_q = masking.log_q
    if log_q is None or not log_q.numel() or torch.compiler.is_compiling() or not bool(log_q.max() > LOG_Q_TOLERANCE):
        return
    allowed = masking.allowed(ALL, ALL)
    wrong = log_q > LOG_Q_TOLERANCE if allowed is None else (log_q > LOG_Q_TOLERANCE) & allowed
    if bool(wrong.any()):
        place = wrong.nonzero()[0].tolist()
        value = float(log_q.expand_as(wrong)[tuple(place)])
        raise InputError(
            f"log_q{place} is {value:g}; expected logs of probabilities, at most 0. "
            "Is its sign wrong, or is it the log of a count?"
        )

"""InfoNCE of a batch against its own candidates: loss, counts and gradients in one pass over the scores.

It equals the mean of `info_nce` with the same mask. The scores are made once, a block of rows at a time, and their
softmax becomes the gradient where it lies. The backward pass only scales what is there: three matrix products in
all, where streaming takes four. That needs a loss whose rows all weigh the same, as here.

Shapes: B rows, M candidates, D width, G given negatives of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

BLOCK_SCORES = {"cpu": 2**22, "cuda": 2**26}
"""Scores that are in memory at a time, some 16 and 256 MB of them, three times over."""


class Counts(NamedTuple):
    """Of each row's negatives, (B,): how many there are, and how their scores lie about the positive's.

    ``balance`` is the number above it less the number below. ``above`` is over 0 where some are above it. ``pairs`` is
    a number where all rows have the same. With n negatives of which t are level, balance is a - (n - t - a), so that
    n - balance is 2 (n - a - t) + t: half of it is the wins, and where a is 0, n + balance is t.
    """

    pairs: Tensor | int
    balance: Tensor
    above: Tensor

    @staticmethod
    def join(batches: Sequence[Counts]) -> Counts:
        """The counts of the rows of several batches."""
        each = ([one.sizes for one in batches], [one.balance for one in batches], [one.above for one in batches])
        return Counts(*map(torch.cat, each))

    @property
    def by_row(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """``wins``, ``sizes``, ``hits`` and ``rows``, as `negwise.losses.LossResult` has them."""
        return self.wins, self.sizes, self.hits, self.rows

    @property
    def wins(self) -> Tensor:
        """Negatives below the positive, a tie counting half, in float64."""
        return (self.pairs - self.balance.double()) / 2

    @property
    def hits(self) -> Tensor:
        """1 / (1 + ties) where no negative is above the positive, else 0, and 0 without negatives; float64."""
        ties = self.balance.double() + self.pairs
        return self.rows * (self.above == 0) / (1 + ties)

    @property
    def sizes(self) -> Tensor:
        """``pairs`` (B,), float64."""
        return torch.zeros_like(self.balance, dtype=torch.float64) + self.pairs

    @property
    def rows(self) -> Tensor:
        """1 for a row with negatives, else 0, float64."""
        return self.sizes.clamp(max=1)


class OnePassResult(NamedTuple):
    """The mean loss, the loss of each row (B,), and what is counted: of all negatives, and of drawn ones alone."""

    mean: Tensor
    loss: Tensor
    counts: Counts
    of_drawn: Counts


def takes(query: Tensor) -> bool:
    """Whether this is the way for such vectors; for half precision on a GPU there are kernels."""
    return query.device.type == "cpu" or (query.device.type == "cuda" and query.dtype == torch.float32)


def one_pass_loss(
    query: Tensor, candidates: Tensor, own: Tensor, mask: Tensor | None, given: Tensor | None
) -> OnePassResult:
    """The mean of eq. 1 from ``query`` (B, D), divided by the temperature, and ``candidates`` (M, D).

    ``own`` (B,) is the place of each row's positive. ``mask`` (B, M) is True for its negatives; None means all others.
    ``given`` (B, G) are the places of its given negatives.
    """
    mean, loss, *told = _OnePass.apply(  # type: ignore[no-untyped-call]
        query, candidates, own, mask, given, torch.is_grad_enabled()
    )
    balance, above, pairs, *of_given = told
    counts = Counts(len(candidates) - 1 if pairs is None else pairs, balance, above)
    if given is None:
        return OnePassResult(mean, loss, counts, counts)
    less = (counts.pairs - of_given[2], balance - of_given[0], above - of_given[1])
    return OnePassResult(mean, loss, counts, Counts(*less))


class _OnePass(torch.autograd.Function):
    """Of the mean loss alone; the other outputs have no gradient."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        candidates: Tensor,
        own: Tensor,
        mask: Tensor | None,
        given: Tensor | None,
        learns: bool,
    ) -> tuple[Tensor | None, ...]:
        found: list[tuple[Tensor | None, ...]] = []
        to_query: list[Tensor] = []
        to_candidates: Tensor | None = None
        rows = max(1, BLOCK_SCORES[query.device.type] // len(candidates))
        for part, place, kept, theirs in _blocks(rows, query, own[:, None], mask, given):
            scores = part @ candidates.t()
            told = _count(scores, place, kept, theirs)
            logs = scores.log_softmax(1)
            found.append((-logs.gather(1, place)[:, 0], *told))
            if learns and any(ctx.needs_input_grad[:2]):
                # The softmax less 1 at the positive: B times the gradient of the scores.
                scores = logs.exp_().scatter_add_(1, place, logs.new_full(place.shape, -1.0))
                if ctx.needs_input_grad[0]:
                    to_query.append(scores @ candidates)
                if ctx.needs_input_grad[1]:
                    back = scores.t()
                    to_candidates = back @ part if to_candidates is None else to_candidates.addmm_(back, part)
        ctx.save_for_backward(_joined(to_query) if to_query else None, to_candidates)
        loss, *counts = (_joined(parts) for parts in zip(*found, strict=True))
        ctx.mark_non_differentiable(loss, *(one for one in counts if one is not None))
        ctx.set_materialize_grads(False)  # of the other outputs, which have none
        ctx.rows = len(query)
        return loss.mean(), loss, *counts

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * 6
        of_row = grad / ctx.rows
        scaled = [None if saved is None else saved * of_row for saved in ctx.saved_tensors]
        return *scaled, None, None, None, None


def _count(scores: Tensor, place: Tensor, mask: Tensor | None, given: Tensor | None) -> tuple[Tensor | None, ...]:
    """Make ``scores`` (rows, M) relative to the positive's, which is at ``place`` (rows, 1), in place, and count.

    Scores that ``mask`` leaves out become -inf. Returned are balance, above and pairs as `Counts` has them, and with
    ``given`` the same of the given negatives, ``above`` being numbers then.
    """
    scores.sub_(scores.gather(1, place))  # the positive's own is exactly 0 now
    most = scores.shape[1] - 1
    if mask is not None:
        scores.masked_fill_(~mask.scatter(1, place, True), -torch.inf)
    # Signs as numbers: adding those up takes a quarter of the time that counting booleans does.
    signs = scores.sign()
    balance = signs.sum(1)
    pairs = None if mask is None else mask.sum(1)
    if pairs is not None:
        balance += most - pairs  # what is left out has the sign of what is below
    if given is None:
        return balance, scores.amax(1), pairs
    above = signs.clamp_(min=0).sum(1)
    theirs = scores.gather(1, given)
    present = (theirs > -torch.inf).sum(1)
    return (
        *(balance, above, pairs),
        *(theirs.sign().sum(1) + given.shape[1] - present, (theirs > 0).sum(1), present),
    )


def _blocks(rows: int, *tensors: Tensor | None) -> Iterator[tuple[Any, ...]]:
    """``tensors`` (B, ...) cut into blocks of so many ``rows``; as they are if one block is enough."""
    size = len(next(one for one in tensors if one is not None))
    if size <= rows:
        yield tensors
        return
    for start in range(0, size, rows):
        yield tuple(None if one is None else one[start : start + rows] for one in tensors)


def _joined(blocks: Sequence[Any]) -> Any:
    return blocks[0] if len(blocks) == 1 or blocks[0] is None else torch.cat(list(blocks))

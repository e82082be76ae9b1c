"""Which K of the candidates a row keeps: given negatives first, the rest drawn without replacement.

The candidates of a batch are C columns of W texts each: column 0 has the positives, the others the negatives that came
with them, and row b's own texts are at place b of each column. An order of the C (W - 1) texts of other rows is drawn
once a batch, as shifts from a row's own place, and row b takes the first of them from its own place on. So each row's
negatives are a uniform sample without replacement of all others, each candidate is used equally often, and the draw
costs O(C W), not O(B C W).

Shapes: B rows of this rank, W rows of all ranks, C columns, M = C W candidates, G = C - 1 given negatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAR = 2**30
"""A rank behind all others: what a row must not take."""


def drawn_ranks(order: Tensor, columns: int, width: int) -> Tensor:
    """The rank of each text of another row, (C, W) int32, by column and shift; shift 0, the row's own, is `FAR`.

    ``order`` (C (W - 1),) is a permutation: the place of the first, the second, ... text to take.
    """
    ranks = torch.empty_like(order, dtype=torch.int32)
    ranks[order] = torch.arange(len(order), device=order.device, dtype=torch.int32)
    own = torch.full((columns, 1), FAR, dtype=torch.int32, device=order.device)
    return torch.cat([own, ranks.view(columns, width - 1)], 1)


def ranks_from_last(ranks: Tensor, rows: int, first: int) -> Tensor:
    """``ranks`` (C, W) by shift as ranks (B, C, W) by place, of the last row first, for rows ``first`` on: a view.

    Row b has at place w the rank of shift (w - b) mod W.
    """
    columns, width = ranks.shape
    twice = torch.cat([ranks, ranks], 1).contiguous()
    # Row b starts at W - b of the doubled ranks. Strides cannot be negative, so the last row comes first.
    start = width - first - (rows - 1)
    return twice.as_strided((rows, columns, width), (1, 2 * width, 1), start)


def keep_mask(
    order: Tensor,
    counts: Tensor,
    first: int,
    columns: int,
    width: int,
    present: Tensor | None = None,
    excluded: Tensor | None = None,
    besides_given: bool = False,
) -> Tensor:
    """True where row b keeps the candidate, (B, C, W) bool.

    ``counts`` (B,): negatives of each row, given ones first; with ``besides_given`` the drawn ones alone, and all given
    ones are kept. ``present`` (B, G): whether the row has that given negative. ``excluded`` (B, C, W): candidates of
    other rows that the row must not take, as texts equal to its positive; the next ones take their place.
    """
    rows = len(counts)
    drawn, keep_given = split_counts(counts, present, besides_given)
    from_last = ranks_from_last(drawn_ranks(order, columns, width), rows, first)
    # What is made of the view is flipped, not the view: on a GPU that fails where it has 4 GB.
    if excluded is None:
        mask = (from_last < drawn.flip(0)[:, None, None]).flip(0)
    else:
        flat = from_last.masked_fill(excluded.flip(0), FAR).flip(0).flatten(1)
        last = (drawn - 1).clamp(0, flat.shape[1] - 1)
        kth = flat.sort(1).values.gather(1, last[:, None])
        mask = ((flat <= kth) & (flat < FAR) & (drawn[:, None] > 0)).view(rows, columns, width)
    if keep_given is not None:
        own = torch.arange(first, first + rows, device=counts.device)
        mask[own - first, 1:, own] = keep_given
    return mask


def keep_ids(
    order: Tensor,
    counts: Tensor,
    most: int,
    first: int,
    columns: int,
    width: int,
    present: Tensor | None = None,
    besides_given: bool = False,
) -> tuple[Tensor, Tensor]:
    """The same choice as `keep_mask` without exclusions, as ids (B, G + most) into the M candidates and their mask."""
    rows = len(counts)
    drawn, keep_given = split_counts(counts, present, besides_given)
    column, shift = order[:most] // (width - 1), order[:most] % (width - 1) + 1
    own = torch.arange(first, first + rows, device=counts.device)
    ids = column * width + (own[:, None] + shift) % width
    mask = torch.arange(ids.shape[1], device=ids.device) < drawn[:, None]
    if keep_given is None:
        return ids, mask
    given = torch.arange(1, columns, device=ids.device) * width + own[:, None]
    return torch.cat([given, ids], 1), torch.cat([keep_given, mask], 1)


def split_counts(counts: Tensor, present: Tensor | None, besides_given: bool) -> tuple[Tensor, Tensor | None]:
    """How many negatives each row draws, (B,), and which given ones it keeps, (B, G), or None without any."""
    if present is None:
        return counts, None
    if besides_given:
        return counts, present
    keep = present & (present.cumsum(1) <= counts[:, None])
    return counts - keep.sum(1), keep

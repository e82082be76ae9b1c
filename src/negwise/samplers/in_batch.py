"""In-batch negatives: the positives of the other rows, alone or before others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.protocols import Negatives
from negwise.samplers.draw_request import (
    DrawRequest,
    Impl,
    OnShortage,
    check_on_shortage,
    prefix_mask,
    resolve_impl,
    resolve_shortage,
    scale_words,
    slot_words,
)
from negwise.samplers.exclusions import ExclusionLookup, Exclusions
from negwise.samplers.lists import check_ids, check_positive_int, check_range
from negwise.samplers.without_replacement import SharedCandidates, draw_ranks, nth_allowed


@dataclass(frozen=True, eq=False)
class InBatch:
    """K of the other rows' positives, without replacement. Rows with the row's own positive are left out.

    Pass ``k = B - 1`` to use them all. ``index`` is the row of the batch that a negative comes from, so its vector
    is not encoded twice. ``log_q`` is conditional on the batch: log(occurrences of the id / rows that are left).
    Over many batches in-batch negatives follow popularity; `Popularity.log_prob` gives that correction.

    With several processes pass the gathered ids as ``batch`` (M,). ``index`` then points into them.
    """

    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)

    @cached_property
    def _exclusions(self) -> ExclusionLookup:
        return ExclusionLookup(self.exclude)

    def __call__(
        self,
        positives: Tensor,
        k: float,
        key: Key,
        *,
        owner: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Negatives:
        resolve_impl(self.impl, positives.device)
        request = DrawRequest.of(positives, k, key)
        candidates = self._candidates(request.positives, owner, batch)
        return candidates.negatives(request, self.on_shortage, self.impl)

    def log_prob(
        self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``, given the batch."""
        return self._candidates(positives.long(), owner, batch).log_prob(ids)

    def _candidates(self, positives: Tensor, owner: Tensor | None, batch: Tensor | None) -> SharedCandidates:
        exclusions, owners = self._exclusions(positives, owner)
        return SharedCandidates.of(
            positives if batch is None else check_ids("batch", batch), positives, exclusions, owners
        )


@dataclass(frozen=True, eq=False)
class BatchFirst:
    """The other rows' positives first: they are encoded already. What K lacks then comes from the catalogue.

    A row with K up to the number of other positives draws K of them, without replacement. With a larger K it takes
    them all, and then the first ids of a pool that every row of the step shares: ids outside the batch, in a random
    order of their own for each step, as many as K asks for. No id comes twice in a row. So a step encodes about
    max(B, K + 1) candidates, and ``k`` up to the whole catalogue can be had.

    Other rows' positives follow popularity and the pool is uniform, so there is no ``log_q``. With several processes
    pass the gathered ids as ``batch`` (M,).
    """

    n_items: int
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)
        check_positive_int("BatchFirst: n_items", self.n_items)

    @cached_property
    def _exclusions(self) -> ExclusionLookup:
        return ExclusionLookup(self.exclude)

    def __call__(
        self,
        positives: Tensor,
        k: float,
        key: Key,
        *,
        owner: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        exclusions, owners = self._exclusions(request.positives, owner)
        inside = torch.unique(request.positives if batch is None else check_ids("batch", batch))
        check_range("positives", inside, self.n_items)
        others = SharedCandidates.of(inside, request.positives, exclusions, owners)
        lacking = (request.wanted - others.available).clamp(min=0)
        pool = self._pool(inside, lacking, exclusions, owners, key)
        rest = SharedCandidates.of(pool, request.positives, exclusions, owners)
        before, available = others.available[:, None], others.available + rest.available
        mask = prefix_mask(resolve_shortage(request.wanted, available, self.on_shortage), request.width)
        slot = torch.arange(request.width, device=positives.device)
        again = scale_words(*slot_words(request.key, request.width, Stream.REPEAT), available[:, None])
        slot = torch.where(slot < available[:, None], slot, again)
        drawn = draw_ranks(others.available, torch.minimum(request.wanted, others.available), request, self.impl)
        first = nth_allowed(others.allowed, drawn.gather(1, slot))
        later = len(inside) + nth_allowed(rest.allowed, (slot - before).clamp(min=0))
        place = torch.where(slot < before, first, later) * mask
        ids = torch.cat((inside, pool))
        return Negatives(ids[place] * mask, mask, None, others.removed, ids, place)

    def _pool(self, inside: Tensor, lacking: Tensor, exclusions: Exclusions, owners: Tensor, key: Key) -> Tensor:
        """Ids outside the batch, so many that every row finds what it lacks, or all there are.

        They are a prefix of a random order that follows from (seed, step) and the batch, so that ranks whose rows lack
        more and fewer take the same ones first.
        """
        most = int(lacking.max()) if len(lacking) else 0
        if most == 0 or len(inside) == self.n_items:
            return inside[:0]
        known = exclusions.offsets[owners + 1] - exclusions.offsets[owners]
        outside = torch.ones(self.n_items, dtype=torch.bool, device=inside.device)
        outside[inside] = False
        left = outside.nonzero().squeeze(1)
        size = min(most + int(known.max()), len(left))
        sizes = torch.full((1,), len(left), device=inside.device)
        shared = DrawRequest.of(inside[:1], size, Key(key.seed, key.step))
        return left[draw_ranks(sizes, sizes.clamp(max=size), shared, self.impl, Stream.POOL)[0]]

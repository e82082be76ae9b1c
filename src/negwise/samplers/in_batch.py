"""In-batch negatives: the positives of the other rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from negwise.draws import Key
from negwise.protocols import Negatives
from negwise.samplers.draw_request import DrawRequest, Impl, OnShortage, check_on_shortage, resolve_impl
from negwise.samplers.exclusions import ExclusionLookup, Exclusions
from negwise.samplers.lists import check_ids
from negwise.samplers.without_replacement import SharedCandidates


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

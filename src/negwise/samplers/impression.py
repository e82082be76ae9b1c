"""Negatives that were shown but not clicked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Negatives
from negwise.samplers.draw_request import (
    DrawRequest,
    Impl,
    OnShortage,
    check_on_shortage,
    prefix_mask,
    resolve_impl,
    resolve_shortage,
)
from negwise.samplers.exclusions import CandidateLists, ExclusionLookup, Exclusions, check_owner
from negwise.samplers.lists import Lists, OnDevice, check_range
from negwise.samplers.without_replacement import draw_ranks, nth_allowed


@dataclass(frozen=True, eq=False)
class Impression:
    """K ids that were shown in the row's impression and not clicked, without replacement.

    ``owner`` is the number of each row's impression. ``shown`` has one list per impression, ``exclude`` its clicks.
    An id that was shown twice counts once. Each slot by itself is uniform, so ``log_q = -log(ids left)``. A row with
    fewer than K non-clicks is short. That is common: MIND's median impression has under 20.
    """

    shown: Lists
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)
        if self.exclude is not None and len(self.exclude) != len(self.shown):
            came = f"exclude has {len(self.exclude)} owners, shown has {len(self.shown)} lists"
            raise InputError(f"{came}; expected one owner per list, in the same order")
        if self.exclude is not None:
            check_range("shown.ids", self.shown.ids, self.exclude.n_items)

    @cached_property
    def _exclusions(self) -> ExclusionLookup:
        return ExclusionLookup(self.exclude)

    @cached_property
    def _lists(self) -> OnDevice[Lists]:
        return OnDevice(self.shown.distinct())

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        resolve_impl(self.impl, positives.device)
        request = DrawRequest.of(positives, k, key)
        candidates = self._candidates(request.positives, owner)
        filled = resolve_shortage(request.wanted, candidates.available, self.on_shortage)
        place = nth_allowed(candidates.allowed, draw_ranks(candidates.available, filled, request, self.impl))
        mask = prefix_mask(filled, request.width)
        ids = candidates.ids.gather(1, place) * mask if candidates.ids.shape[1] else place
        log_q = -candidates.available.clamp(min=1).double().log().float()[:, None].expand_as(ids)
        return Negatives(ids, mask, log_q, candidates.removed)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``; -inf for ids that were not shown."""
        return self._candidates(positives.long(), owner).log_prob(ids)

    def _candidates(self, positives: Tensor, owner: Tensor | None) -> CandidateLists:
        owners = check_owner(owner, len(self.shown), positives)
        exclusions, _ = self._exclusions(positives, owners)
        return CandidateLists.of(self._lists(positives.device), exclusions, positives, owners)

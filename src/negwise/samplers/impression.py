"""Shown but not clicked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Negatives
from negwise.samplers.device import OnDevice
from negwise.samplers.engine import Impl, which
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.listed import Listed
from negwise.samplers.lists import Lists, check_range
from negwise.samplers.request import Known, Request, check_owner
from negwise.samplers.shortage import OnShortage, check_policy, settle
from negwise.samplers.subset import places, ranks
from negwise.samplers.words import prefix


@dataclass(frozen=True, eq=False)
class Impression:
    """K of what was shown in the row's impression, without replacement, less what was clicked there.

    ``owner`` is the impression of each row; ``shown`` has a list for each and ``exclude`` its clicks. A list is
    a set here: an id shown twice counts once. Each slot alone is uniform, so ``log_q = -log(ids left)``. An
    impression with fewer than K non-clicks is short, which is common: MIND's median is under 20.
    """

    shown: Lists
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"
    impl: Impl = "auto"

    def __post_init__(self) -> None:
        check_policy(self.on_shortage)
        if self.exclude is not None and len(self.exclude) != len(self.shown):
            came = f"exclude has {len(self.exclude)} owners, shown has {len(self.shown)} lists"
            raise InputError(f"{came}; expected as many, in the same order")
        if self.exclude is not None:
            check_range("shown.ids", self.shown.ids, self.exclude.n_items)

    @cached_property
    def _known(self) -> Known:
        return Known(self.exclude)

    @cached_property
    def _lists(self) -> OnDevice[Lists]:
        return OnDevice(self.shown.distinct())

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        which(self.impl, positives.device)
        ask = Request.of(positives, k, key)
        listed = self._listed(ask.positives, owner)
        filled = settle(ask.wanted, listed.available, self.on_shortage)
        place = places(listed.allowed, ranks(listed.available, filled, ask, self.impl))
        mask = prefix(filled, ask.width)
        ids = listed.ids.gather(1, place) * mask if listed.ids.shape[1] else place
        log_q = -listed.available.clamp(min=1).double().log().float()[:, None].expand_as(ids)
        return Negatives(ids, mask, log_q, listed.removed)

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``; -inf for what was not shown."""
        return self._listed(positives.long(), owner).log_prob(ids)

    def _listed(self, positives: Tensor, owner: Tensor | None) -> Listed:
        owners = check_owner(owner, len(self.shown), positives)
        known, _ = self._known(positives, owners)
        return Listed.of(self._lists(positives.device), known, positives, owners)

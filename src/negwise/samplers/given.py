"""Negatives that were chosen beforehand: mined, labelled, or written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Negatives
from negwise.samplers.draw_request import (
    DrawRequest,
    OnShortage,
    check_on_shortage,
    prefix_mask,
    resolve_shortage,
    scale_words,
    slot_words,
)
from negwise.samplers.exclusions import CandidateLists, ExclusionLookup, Exclusions, check_owner
from negwise.samplers.lists import Lists, OnDevice, check_range
from negwise.samplers.without_replacement import nth_allowed


@dataclass(frozen=True, eq=False)
class Given:
    """The first K ids of the row's own list, in order, without the positive and the exclusions.

    ``owner`` is the number of each row's list. Nothing is random, so there is no ``log_q``. With
    ``on_shortage="replace"`` the slots past the end of the list repeat random ids of it.
    """

    lists: Lists
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)
        if self.exclude is not None and len(self.exclude) != len(self.lists):
            came = f"exclude has {len(self.exclude)} owners, lists has {len(self.lists)} lists"
            raise InputError(f"{came}; expected one owner per list, in the same order")
        if self.exclude is not None:
            check_range("lists.ids", self.lists.ids, self.exclude.n_items)

    @cached_property
    def _exclusions(self) -> ExclusionLookup:
        return ExclusionLookup(self.exclude)

    @cached_property
    def _lists(self) -> OnDevice[Lists]:
        return OnDevice(self.lists)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        owners = check_owner(owner, len(self.lists), request.positives)
        exclusions, _ = self._exclusions(request.positives, owners)
        candidates = CandidateLists.of(self._lists(positives.device), exclusions, request.positives, owners)
        filled = resolve_shortage(request.wanted, candidates.available, self.on_shortage)
        slot = torch.arange(request.width, device=positives.device)
        again = scale_words(*slot_words(request.key, request.width, Stream.REPEAT), candidates.available[:, None])
        place = nth_allowed(candidates.allowed, torch.where(slot < candidates.available[:, None], slot, again))
        mask = prefix_mask(filled, request.width)
        ids = candidates.ids.gather(1, place) * mask if candidates.ids.shape[1] else place
        return Negatives(ids, mask, None, candidates.removed)

"""Negatives that were chosen beforehand, mined, labelled or written by hand: alone, or before drawn ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Negatives, Query, Sampler
from negwise.samplers.draw_request import (
    DrawRequest,
    OnShortage,
    check_on_shortage,
    draw_part,
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


@dataclass(frozen=True, eq=False)
class GivenFirst:
    """The row's own list in its order, less the positive; ``fill`` draws the rest of its K negatives.

    ``owner[b]`` is the number of row b's list. ``given`` of the result is the number of first slots that come from the
    list. Let ``fill`` exclude what is in the lists, or an id may come twice. There is no ``log_q``: nobody drew what
    was given.
    """

    lists: Lists
    fill: Sampler

    @property
    def parts(self) -> tuple[Sampler, ...]:
        """The samplers it is made of."""
        return (self.fill,)

    @cached_property
    def _lists(self) -> OnDevice[Lists]:
        return OnDevice(self.lists)

    def __call__(
        self,
        positives: Tensor,
        k: float,
        key: Key,
        *,
        owner: Tensor | None = None,
        query: Query | None = None,
        batch: Tensor | None = None,
    ) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        owners = check_owner(owner, len(self.lists), request.positives)
        own = CandidateLists.of(self._lists(positives.device), Exclusions.none(1), request.positives, owners)
        given = torch.minimum(request.wanted, own.available)
        drawn = draw_part(self.fill, positives, k, key, owner=owner, query=query, batch=batch)
        slot = torch.arange(request.width, device=positives.device)
        is_given = slot < given[:, None]
        # Slot j of a row with g given negatives takes the fill's slot j - g.
        later = (slot - given[:, None]).clamp(min=0)
        first = self._first(own, slot, is_given)
        ids = torch.where(is_given, first, drawn.ids.gather(1, later))
        mask = prefix_mask(request.wanted, request.width) & (is_given | drawn.mask.gather(1, later))
        ids = ids * mask
        pool, index = None, None
        if drawn.pool is not None:
            pool = torch.unique(torch.cat((drawn.pool, ids[is_given])))
            index = torch.searchsorted(pool, ids).clamp(max=len(pool) - 1) * mask
        return Negatives(ids, mask, None, drawn.removed, pool, index, given)

    @staticmethod
    def _first(own: CandidateLists, slot: Tensor, is_given: Tensor) -> Tensor:
        """(B, K): the j-th allowed id of the row's list, 0 past its end."""
        if own.ids.shape[1] == 0:
            return torch.zeros_like(is_given, dtype=torch.int64)
        place = nth_allowed(own.allowed, slot.expand_as(is_given) * is_given)
        return own.ids.gather(1, place) * is_given

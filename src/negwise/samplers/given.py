"""Negatives that someone chose before: mined, judged, or written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Negatives
from negwise.samplers.device import OnDevice
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.listed import Listed
from negwise.samplers.lists import Lists, check_range
from negwise.samplers.request import Known, Request, check_owner
from negwise.samplers.shortage import OnShortage, check_policy, settle
from negwise.samplers.subset import places
from negwise.samplers.words import prefix, scale, slots


@dataclass(frozen=True, eq=False)
class Given:
    """The first K of the row's own list, in its order, less the positive and what ``exclude`` says.

    ``owner`` is the list of each row. Nothing is drawn, so there is no ``log_q``; with
    ``on_shortage="replace"`` the slots past the end repeat from the list at random.
    """

    lists: Lists
    exclude: Exclusions | None = None
    on_shortage: OnShortage = "mask"

    def __post_init__(self) -> None:
        check_policy(self.on_shortage)
        if self.exclude is not None and len(self.exclude) != len(self.lists):
            came = f"exclude has {len(self.exclude)} owners, lists has {len(self.lists)} lists"
            raise InputError(f"{came}; expected as many, in the same order")
        if self.exclude is not None:
            check_range("lists.ids", self.lists.ids, self.exclude.n_items)

    @cached_property
    def _known(self) -> Known:
        return Known(self.exclude)

    @cached_property
    def _lists(self) -> OnDevice[Lists]:
        return OnDevice(self.lists)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        ask = Request.of(positives, k, key)
        owners = check_owner(owner, len(self.lists), ask.positives)
        known, _ = self._known(ask.positives, owners)
        listed = Listed.of(self._lists(positives.device), known, ask.positives, owners)
        filled = settle(ask.wanted, listed.available, self.on_shortage)
        slot = torch.arange(ask.width, device=positives.device)
        again = scale(*slots(ask.key, ask.width, Stream.REPEAT), listed.available[:, None])
        place = places(listed.allowed, torch.where(slot < listed.available[:, None], slot, again))
        mask = prefix(filled, ask.width)
        ids = listed.ids.gather(1, place) * mask if listed.ids.shape[1] else place
        return Negatives(ids, mask, None, listed.removed)

"""Ids that a row must never draw: those that its owner knows.

They are stored as sorted lists and, if memory allows, as a bitmap. Both give the same answers, so the draws do not
depend on the form. Shapes: U owners, N known ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.samplers.lists import Lists, OnDevice, check_ids, check_range

BITMAP_LIMIT = 2**31
"""Largest bitmap that is built by default, in bits: 256 MB."""


@dataclass(frozen=True, eq=False)
class Exclusions:
    """Ids that each owner knows. Make it with `Exclusions.of`.

    >>> known = Exclusions.of(Lists.of([[3, 1], [], [2]]), n_items=5)
    >>> known.contains(torch.tensor([[0], [2]]), torch.tensor([1, 2])).tolist()
    [[True, False], [False, True]]
    """

    n_items: int
    offsets: Tensor  # (U + 1,) into keys
    keys: Tensor  # (N,) owner * n_items + id, sorted, distinct
    bits: Tensor | None = None  # (U, ceil(n_items / 64)) int64

    @classmethod
    def of(cls, lists: Lists, n_items: int, bitmap: bool | None = None) -> Exclusions:
        """Make it from lists. ``bitmap=None`` builds a bitmap if owners x items is at most 2^31 bits."""
        if len(lists.ids) and int(lists.ids.max()) >= n_items:
            raise InputError(f"Exclusions: id {int(lists.ids.max())}, expected ids below n_items={n_items}")
        keys = lists.owners
        keys.mul_(n_items).add_(lists.ids)
        if not bool((keys[1:] > keys[:-1]).all()):  # lists that are sorted sets need no second sort, nor its memory
            keys = torch.unique(keys)
        starts = torch.arange(len(lists) + 1, device=keys.device) * n_items
        if bitmap is None:
            bitmap = len(lists) * n_items <= BITMAP_LIMIT
        bits = _pack(keys, len(lists), n_items) if bitmap else None
        return cls(n_items, torch.searchsorted(keys, starts), keys, bits)

    @classmethod
    def none(cls, n_items: int) -> Exclusions:
        """No exclusions: one owner with an empty list."""
        return cls.of(Lists.of([[]]), n_items, bitmap=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def device(self) -> torch.device:
        return self.keys.device

    def to(self, device: torch.device) -> Exclusions:
        bits = None if self.bits is None else self.bits.to(device)
        return Exclusions(self.n_items, self.offsets.to(device), self.keys.to(device), bits)

    @property
    def ids(self) -> Tensor:
        """The known ids (N,), sorted within each owner."""
        return self.keys % self.n_items

    def contains(self, owner: Tensor, ids: Tensor) -> Tensor:
        """Whether ``owner`` knows ``ids``. The two broadcast."""
        if self.bits is not None:
            word = self.bits.flatten()[owner * self.bits.shape[1] + (ids >> 6)]
            return (word >> (ids & 63)) & 1 == 1
        wanted = owner * self.n_items + ids
        if len(self.keys) == 0:
            return torch.zeros_like(wanted, dtype=torch.bool)
        at = torch.searchsorted(self.keys, wanted).clamp(max=len(self.keys) - 1)
        return self.keys[at] == wanted

    def before(self, owner: Tensor, ids: Tensor) -> Tensor:
        """The position in ``keys`` of the first id that ``owner`` knows and that is not below ``ids``."""
        return torch.searchsorted(self.keys, owner * self.n_items + ids)


class ExclusionLookup:
    """``lookup(positives, owner)`` returns the exclusions and each row's owner (B,), on the device of positives."""

    def __init__(self, exclude: Exclusions | None) -> None:
        self.exclude = exclude
        self._tables = OnDevice(exclude or Exclusions.none(1))

    def __call__(self, positives: Tensor, owner: Tensor | None) -> tuple[Exclusions, Tensor]:
        # A loop that serves every sampler may pass an owner to a sampler without exclusions. It has no effect there.
        if self.exclude is None:
            return self._tables(positives.device), torch.zeros_like(positives)
        return self._tables(positives.device), check_owner(owner, len(self.exclude), positives)


@dataclass(frozen=True, eq=False)
class CandidateLists:
    """Candidates from the list of each row's owner, padded to the longest list.

    ``ids`` (B, L), ``allowed`` (B, L) True where the row may draw the id, ``removed`` (B,) the share that it may not.
    Shapes: B rows, K slots, L longest list.
    """

    ids: Tensor
    allowed: Tensor
    removed: Tensor

    @classmethod
    def of(cls, lists: Lists, exclusions: Exclusions, positives: Tensor, owner: Tensor) -> CandidateLists:
        ids, mask = lists.padded(owner)
        allowed = mask & (ids != positives[:, None])
        if len(exclusions.keys):
            allowed &= ~exclusions.contains(owner[:, None], ids)
        length = mask.sum(1)
        removed = (length - allowed.sum(1)).float() / length.clamp(min=1)
        return cls(ids, allowed, removed)

    @property
    def available(self) -> Tensor:
        return self.allowed.sum(1)

    def log_prob(self, ids: Tensor) -> Tensor:
        """Log of (occurrences of ``ids`` (B, K) among the allowed candidates / number of those); -inf for none."""
        values = torch.where(self.allowed, self.ids, -1).sort(1).values
        ids = ids.contiguous()
        times = torch.searchsorted(values, ids, right=True) - torch.searchsorted(values, ids)
        return (times.double().log() - self.available.clamp(min=1).double().log()[:, None]).float()


def check_owner(owner: Tensor | None, n_owners: int, positives: Tensor) -> Tensor:
    """The owner of each row (B,), checked, on the device of ``positives``."""
    if owner is None:
        raise InputError(
            "owner is missing, and this sampler has a list per owner: sampler(positives, k, key, owner=user_ids)"
        )
    owner = check_ids("owner", owner)
    if owner.shape != positives.shape:
        came = f"of shape {tuple(owner.shape)}"
        raise InputError(f"owner is {came}, expected integers of shape {tuple(positives.shape)}, one per row")
    check_range("owner", owner, n_owners)
    return owner.to(positives.device)


def _pack(keys: Tensor, n_owners: int, n_items: int) -> Tensor:
    owner, item = keys // n_items, keys % n_items
    width = (n_items + 63) // 64
    bits = torch.zeros(n_owners * width, dtype=torch.int64, device=keys.device)
    # The keys are distinct, so adding a power of two sets its bit. Bit 63 is the sign bit; the sum wraps correctly.
    bits.index_add_(0, owner * width + (item >> 6), 1 << (item & 63))
    return bits.view(n_owners, width)

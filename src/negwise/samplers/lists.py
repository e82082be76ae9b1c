"""Ragged lists of ids, one per owner (a user, a query, an impression), and checks of ids and counts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from negwise.errors import InputError


@dataclass(frozen=True, eq=False)
class Lists:
    """Lists of U owners in one flat tensor: owner u has ``ids[offsets[u]:offsets[u + 1]]``.

    ``offsets`` (U + 1,) are int64, ``ids`` (N,) int64 or, where memory counts, int32. What is drawn is int64.
    """

    offsets: Tensor
    ids: Tensor

    def __post_init__(self) -> None:
        for name, values in (("offsets", self.offsets), ("ids", self.ids)):
            narrow = name == "ids" and values.dtype == torch.int32
            if values.ndim != 1 or (values.dtype != torch.int64 and not narrow):
                came = f"{values.dtype} of shape {tuple(values.shape)}"
                raise InputError(f"Lists: {name} is {came}, expected a 1-D int64 tensor")
        steps = self.offsets.diff()
        if len(self.offsets) == 0 or self.offsets[0] != 0 or self.offsets[-1] != len(self.ids):
            raise InputError(f"Lists: offsets must run from 0 to {len(self.ids)}, the number of ids")
        if bool((steps < 0).any()):
            raise InputError(
                f"Lists: offsets fall after owner {int((steps < 0).nonzero()[0])}, expected offsets that never fall"
            )
        if len(self.ids) and int(self.ids.min()) < 0:
            raise InputError(f"Lists: id {int(self.ids.min())}, expected ids >= 0; leave out the padding")

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> Lists:
        """Make it from Python lists: ``Lists.of([[3, 1], [], [2]])``."""
        rows = [list(row) for row in lists]
        lengths = torch.tensor([0] + [len(row) for row in rows], dtype=torch.int64)
        items = [item for row in rows for item in row]
        flat = check_ids("ids", torch.tensor(items)) if items else torch.empty(0, dtype=torch.int64)
        return cls(lengths.cumsum(0), flat)

    @classmethod
    def of_pairs(cls, owners: Tensor, ids: Tensor, n_owners: int) -> Lists:
        """Make it from (owner, id) pairs in any order. The ids of an owner keep their order."""
        owners, ids = check_ids("owners", owners), check_ids("ids", ids)
        if owners.shape != ids.shape:
            raise InputError(
                f"Lists: {tuple(owners.shape)} owners for {tuple(ids.shape)} ids, expected as many owners as ids"
            )
        if len(owners) and not 0 <= int(owners.min()) <= int(owners.max()) < n_owners:
            span = f"{int(owners.min())}..{int(owners.max())}"
            raise InputError(f"Lists: owners {span}, expected 0..{n_owners - 1}; raise n_owners")
        order = owners.argsort(stable=True)
        lengths = torch.bincount(owners, minlength=n_owners)
        return cls(torch.cat((lengths.new_zeros(1), lengths.cumsum(0))), ids[order])

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Tensor:
        """How many ids each owner has, (U,)."""
        return self.offsets.diff()

    @property
    def owners(self) -> Tensor:
        """The owner of each id, (N,)."""
        return torch.repeat_interleave(torch.arange(len(self), device=self.ids.device), self.lengths)

    @property
    def device(self) -> torch.device:
        return self.ids.device

    def to(self, device: torch.device) -> Lists:
        return Lists(self.offsets.to(device), self.ids.to(device))

    def distinct(self) -> Lists:
        """The same lists, sorted and without duplicates; itself if they are that already."""
        if self._rises():
            return self
        pairs = torch.unique(torch.stack((self.owners, self.ids), 1), dim=0)
        return Lists.of_pairs(pairs[:, 0], pairs[:, 1], len(self))

    def _rises(self) -> bool:
        """Whether each id is above the one before it in its list."""
        above = self.ids[1:] > self.ids[:-1]
        first = self.offsets[1:-1] - 1
        above[first[(first >= 0) & (first < len(above))]] = True  # a list may begin below the end of the one before
        return bool(above.all())

    def padded(self, owner: Tensor) -> tuple[Tensor, Tensor]:
        """The lists of ``owner`` (B,), padded to the longest: ids (B, L), 0 where the mask (B, L) is False."""
        start = self.offsets[owner]
        length = self.offsets[owner + 1] - start  # not all lengths, which are as many as owners
        position = torch.arange(int(length.max()) if len(owner) else 0, device=owner.device)
        mask = position < length[:, None]
        at = torch.where(mask, start[:, None] + position, 0)
        ids = self.ids[at].long() if len(self.ids) else at
        return torch.where(mask, ids, 0), mask


class Movable(Protocol):
    @property
    def device(self) -> torch.device: ...

    def to(self, device: torch.device) -> Self: ...


T = TypeVar("T", bound=Movable)


class OnDevice(Generic[T]):
    """``tables(device)`` returns the value on that device. It is copied there once, then kept."""

    def __init__(self, value: T) -> None:
        self._copies = {value.device: value}
        self._value = value

    def __call__(self, device: torch.device) -> T:
        if device not in self._copies:
            self._copies[device] = self._value.to(device)
        return self._copies[device]


def check_range(name: str, values: Tensor, end: int) -> None:
    """Check 0 <= values < end. Reading values would stall a GPU, so there the device asserts, a little later."""
    if values.device.type != "cpu":
        torch._assert_async(((values >= 0) & (values < end)).all(), f"{name} out of range 0..{end - 1}")
    elif values.numel():
        low, high = values.aminmax()
        if int(low) < 0 or int(high) >= end:
            raise InputError(f"{name} holds {int(low)}..{int(high)}, expected 0..{end - 1}")


def check_positive_int(name: str, value: object, most: int | None = None, label: str = "") -> int:
    """``value`` as an int, checked to be from 1 to ``most``, which messages write as ``label``. NumPy integers pass."""
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
        if number >= 1 and (most is None or number <= most):
            return number
    expected = "an integer, 1 or more" if most is None else f"an integer from 1 to {label}"
    raise InputError(f"{name}={value!r}, expected {expected}")


def check_ids(name: str, values: object) -> Tensor:
    """``values`` as int64, checked to be a tensor of integers."""
    if not isinstance(values, Tensor):
        raise InputError(f"{name} is a {type(values).__name__}, expected a torch tensor of integers")
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        came = f"{values.dtype} of shape {tuple(values.shape)}"
        raise InputError(f"{name} is {came}, expected integers; type {name}.long()")
    return values.long()

"""What every sampler does first: look at what came, and settle how many slots each row wants."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.draws import Key, counts, max_count
from negwise.errors import InputError
from negwise.samplers.device import OnDevice
from negwise.samplers.exclusions import Exclusions
from negwise.samplers.lists import check_ids, check_range


@dataclass(frozen=True, eq=False)
class Request:
    """``width`` = Kmax slots, of which row b wants ``wanted[b]``; ``key`` has its rows on the device."""

    positives: Tensor
    width: int
    wanted: Tensor
    key: Key

    @classmethod
    def of(cls, positives: Tensor, k: float, key: Key) -> Request:
        ids = check_ids("positives", positives)
        if ids.ndim != 1:
            raise InputError(f"positives has shape {tuple(ids.shape)}, expected a 1-D tensor of ids; flatten it first")
        if not isinstance(key, Key):
            raise InputError(f"key is a {type(key).__name__}, expected Key(seed, step)")
        key = key.on(positives.device, len(positives))
        return cls(ids, max_count(k), counts(k, len(ids), key), key)


class Known:
    """``known(positives, owner)``: what is excluded, on the device, and whose row is whose, (B,)."""

    def __init__(self, exclude: Exclusions | None) -> None:
        self.exclude = exclude
        self._tables = OnDevice(exclude or Exclusions.none(1))

    def __call__(self, positives: Tensor, owner: Tensor | None) -> tuple[Exclusions, Tensor]:
        # Without lists an owner says nothing, and a loop that serves every sampler may pass one all the same.
        if self.exclude is None:
            return self._tables(positives.device), torch.zeros_like(positives)
        return self._tables(positives.device), check_owner(owner, len(self.exclude), positives)


def check_owner(owner: Tensor | None, n_owners: int, positives: Tensor) -> Tensor:
    """Whose row is whose, (B,), on the device of ``positives``."""
    if owner is None:
        raise InputError("rows have lists here; say whose is whose: sampler(positives, k, key, owner=user_ids)")
    owner = check_ids("owner", owner)
    if owner.shape != positives.shape:
        came = f"of shape {tuple(owner.shape)}"
        raise InputError(f"owner is {came}, expected integers of shape {tuple(positives.shape)}, one a row")
    check_range("owner", owner, n_owners)
    return owner.to(positives.device)

"""Tables follow the batch: copied to its device once, then kept."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar

import torch


class Movable(Protocol):
    @property
    def device(self) -> torch.device: ...

    def to(self, device: torch.device) -> Self: ...


T = TypeVar("T", bound=Movable)


class OnDevice(Generic[T]):
    """``tables(device)`` is the value on that device."""

    def __init__(self, value: T) -> None:
        self._copies = {value.device: value}
        self._value = value

    def __call__(self, device: torch.device) -> T:
        if device not in self._copies:
            self._copies[device] = self._value.to(device)
        return self._copies[device]

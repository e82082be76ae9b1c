"""The optimizer of a run, with its learning rates over training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(eq=False)
class Optimization:
    """The optimizer, set up by Fabric, with its base learning rates and their scale over training."""

    optimizer: Any
    rates: list[float]
    scale: Callable[[float], float] | None

    def set_rates(self, fraction: float) -> None:
        if self.scale is None:
            return
        scale = self.scale(fraction)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):  # where a graph looks for it
                group["lr"].fill_(rate * scale)
            else:
                group["lr"] = rate * scale

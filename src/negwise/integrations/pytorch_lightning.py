"""`negwise.integrations.lightning` for programs that import ``pytorch_lightning``."""

from __future__ import annotations

from typing import Any

from negwise.errors import require
from negwise.integrations.lightning_hooks import KHooks
from negwise.integrations.lightning_pilot import CurveHooks, run_pilot
from negwise.theory.estimate import Estimate

require("pytorch_lightning", extra="lightning")

from pytorch_lightning import Callback, LightningModule, Trainer


class KCallback(KHooks, Callback):  # type: ignore[misc]
    __doc__ = KHooks.__doc__


class _Curve(CurveHooks, Callback):  # type: ignore[misc]
    __doc__ = CurveHooks.__doc__


def find_k(
    model: LightningModule, train_dataloaders: Any, val_dataloaders: Any, *, seed: int = 0, **options: Any
) -> Estimate:
    """As ``find_k`` of `negwise.integrations.lightning`, with its ``options``."""
    callback, curve = KCallback("1", seed=seed), _Curve()
    return run_pilot(Trainer, callback, curve, model, train_dataloaders, val_dataloaders, **options)

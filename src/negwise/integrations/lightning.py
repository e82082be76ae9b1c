"""K in Lightning: ``Trainer(callbacks=[KCallback("online")])`` and a loss of `negwise.integrations` in the module.

`find_k` runs a short pilot with K = 1 in the manner of Lightning's own finders and gives the estimate.
"""

from __future__ import annotations

from typing import Any

from negwise.errors import require
from negwise.integrations.lightning_hooks import KHooks
from negwise.integrations.lightning_pilot import CurveHooks, run_pilot
from negwise.theory.estimate import Estimate

require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer


class KCallback(KHooks, Callback):  # type: ignore[misc]
    __doc__ = KHooks.__doc__


class _Curve(CurveHooks, Callback):  # type: ignore[misc]
    __doc__ = CurveHooks.__doc__


def find_k(
    model: LightningModule,
    train_dataloaders: Any,
    val_dataloaders: Any,
    *,
    steps: int = 500,
    evaluations: int = 20,
    seed: int = 0,
    **trainer_options: Any,
) -> Estimate:
    """K* of the paper for ``model``, from ``steps`` steps with K = 1 and ``evaluations`` validations on the way.

    The weights are put back as they were. The training AUC is that of as many training batches as there are validation
    batches, in evaluation mode. ``trainer_options`` go to the pilot's ``Trainer``, as ``accelerator="gpu"``.

    >>> find_k(model, train, val).k  # doctest: +SKIP
    """
    trainer_options |= {"steps": steps, "evaluations": evaluations}
    callback, curve = KCallback("1", seed=seed), _Curve()
    return run_pilot(Trainer, callback, curve, model, train_dataloaders, val_dataloaders, **trainer_options)

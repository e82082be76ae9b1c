"""K in Lightning: ``Trainer(callbacks=[KCallback("online")])`` and a loss of `negwise.integrations` in the module.

`find_k` runs a short pilot with K = 1 in the manner of Lightning's own finders and gives the estimate.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any

from negwise.errors import InputError, require
from negwise.integrations.lightning_hooks import KHooks
from negwise.theory.estimate import Estimate
from negwise.theory.optimal_k import optimal_k

require("lightning.pytorch", extra="lightning")

from lightning.pytorch import Callback, LightningModule, Trainer


class KCallback(KHooks, Callback):  # type: ignore[misc]
    __doc__ = KHooks.__doc__


class _Curve(Callback):  # type: ignore[misc]
    """The validation scores over the steps of a pilot."""

    def __init__(self, scores: KCallback) -> None:
        self.scores = scores
        self.steps: list[int] = []
        self.found: list[Any] = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._keep(trainer.global_step)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        self._keep(trainer.global_step)

    def _keep(self, step: int) -> None:
        if self.scores.last_scores is not None and (not self.steps or step > self.steps[-1]):
            self.steps.append(step)
            self.found.append(self.scores.last_scores)


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
    if not 2 <= evaluations <= steps:
        raise InputError(f"find_k: steps={steps} and evaluations={evaluations}, expected 2 <= evaluations <= steps")
    before = copy.deepcopy(model.state_dict())
    callback = KCallback("1", seed=seed)
    curve = _Curve(callback)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = Trainer(
        max_steps=steps,
        max_epochs=-1,
        val_check_interval=max(1, steps // evaluations) * trainer_options.get("accumulate_grad_batches", 1),
        check_val_every_n_epoch=None,
        callbacks=[callback, curve, *trainer_options.pop("callbacks", [])],
        **quiet | trainer_options,
    )
    try:
        trainer.fit(model, train_dataloaders, val_dataloaders)
        batches = sum(int(number) for number in trainer.num_val_batches)
        trainer.limit_val_batches = batches
        with warnings.catch_warnings():  # training data may come in any order here
            warnings.filterwarnings("ignore", ".*sampler has shuffling enabled")
            trainer.validate(model, train_dataloaders, verbose=False)
        train = callback.last_scores
    finally:
        model.load_state_dict(before)
    if train is None or train.auc is None or len(curve.steps) < 2:
        raise InputError("find_k: no AUC was evaluated; expected validation_step to call the module's loss")
    return optimal_k(
        train_auc=train.auc,
        train_se=train.auc_se,
        val_auc=[one.auc for one in curve.found],
        val_se=[one.auc_se for one in curve.found],
        steps=curve.steps,
    )

"""K* from a short pilot with K = 1, for ``lightning`` and ``pytorch_lightning``, each with classes of its own."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from negwise.errors import InputError
from negwise.integrations.lightning_hooks import KHooks
from negwise.theory.estimate import Estimate
from negwise.theory.optimal_k import optimal_k

QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}

OWN_OPTIONS = ("max_steps", "max_epochs", "val_check_interval", "check_val_every_n_epoch")


class CurveHooks:
    """The validation scores over the steps of a pilot, whose callback has them."""

    scores: KHooks

    def watch(self, scores: KHooks) -> None:
        self.scores = scores
        self.steps: list[int] = []
        self.found: list[Any] = []

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            self._keep()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        del trainer, pl_module
        self._keep()

    def _keep(self) -> None:
        step = self.scores.control.steps_ended
        if self.scores.last_scores is not None and (not self.steps or step > self.steps[-1]):
            self.steps.append(step)
            self.found.append(self.scores.last_scores)


def run_pilot(
    trainer_class: Any,
    callback: Any,
    curve: Any,
    model: Any,
    train_dataloaders: Any,
    val_dataloaders: Any,
    *,
    steps: int = 500,
    evaluations: int = 20,
    **trainer_options: Any,
) -> Estimate:
    """The estimate of ``model``, which is trained with the K of ``callback`` and put back; ``curve`` watches it."""
    if not 2 <= evaluations <= steps:
        raise InputError(f"find_k: steps={steps} and evaluations={evaluations}, expected 2 <= evaluations <= steps")
    if not hasattr(model, "training_step"):
        raise InputError(f"find_k got a {type(model).__name__} for the model, expected a LightningModule")
    if taken := [name for name in OWN_OPTIONS if name in trainer_options]:
        raise InputError(f"find_k sets {', '.join(taken)} of the trainer itself: pass steps= and evaluations=")
    before = copy.deepcopy(model.state_dict())
    curve.watch(callback)
    trainer = trainer_class(
        max_steps=steps,
        max_epochs=-1,
        val_check_interval=max(1, steps // evaluations) * trainer_options.get("accumulate_grad_batches", 1),
        check_val_every_n_epoch=None,
        callbacks=[callback, curve, *trainer_options.pop("callbacks", [])],
        **QUIET | trainer_options,
    )
    try:
        trainer.fit(model, train_dataloaders, val_dataloaders)
        trainer.limit_val_batches = sum(int(number) for number in trainer.num_val_batches)
        with warnings.catch_warnings():  # training data may come in any order here
            warnings.filterwarnings("ignore", ".*sampler has shuffling enabled")
            trainer.validate(model, train_dataloaders, verbose=False)
        train = callback.last_scores
    finally:
        model.load_state_dict(before)
    if train is None or train.auc is None or len(curve.steps) < 2:
        raise InputError(
            "find_k: no AUC was evaluated; expected val_dataloaders, and a validation_step that calls the loss"
        )
    return optimal_k(
        train_auc=train.auc,
        train_se=train.auc_se,
        val_auc=[one.auc for one in curve.found],
        val_se=[one.auc_se for one in curve.found],
        steps=curve.steps,
    )

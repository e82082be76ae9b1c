"""K in a Hugging Face ``Trainer``: ``attach(trainer, "online")`` after the trainer is made.

The loss is the cross-entropy over the target and K of the other scores, in the place of the model's own. Scores are the
model's ``logits`` (B, M) with ``labels`` (B,), the column of each row's positive; or those of a batch against itself.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from negwise.errors import InputError, require
from negwise.integrations.k_losses import HoldsControl, KCrossEntropy
from negwise.protocols import Rule

require("transformers", extra="transformers")

from transformers import Trainer

from negwise.integrations.trainer_callback import KTrainerCallback, add_callbacks


def attach(
    trainer: Trainer,
    rule: str | Rule = "online",
    *,
    scores: Callable[[Any], Tensor] | None = None,
    in_batch: bool = False,
    given: int = 0,
    seed: int | None = None,
    run: str | Path | None = None,
) -> KTrainerCallback:
    """Let K of ``trainer``'s loss follow ``rule``, "online", "ans:20", "8", or a rule of one's own.

    ``scores(outputs)`` gives the scores (B, M) of the model's outputs; None is ``outputs.logits``. With ``in_batch``
    row b's positive is column b, as in ``logits_per_text`` of a CLIP model, and no labels are used. The ``given``
    columns after the positive's are a row's own negatives, which come first. K, the K that rows had and the win rate
    are logged with the loss, and evaluations have ``eval_auc`` with its error and counts; the first one is before
    training. ``run`` is a folder for ``negwise report``.

    Where the model itself holds a `KCrossEntropy` or a `KInfoNCE` and returns its loss, that one is told K, and nothing
    else changes.
    """
    if not isinstance(trainer, Trainer):
        raise InputError(f"attach got a {type(trainer).__name__}, expected a transformers.Trainer")
    own = [module for module in trainer.model.modules() if isinstance(module, HoldsControl)]
    if own:
        if scores is not None or in_batch or given:
            raise InputError(
                f"the model holds a {type(own[0]).__name__}, with its own scores: leave out scores, in_batch, given"
            )
        callback = add_callbacks(trainer, rule, seed, run)
        callback.tell(own)
        return callback
    if trainer.compute_loss_func is not None:
        raise InputError(
            "the trainer has a compute_loss_func, which attach would replace. Leave it out; pass what makes scores of "
            "the model's outputs as attach(trainer, rule, scores=...)"
        )
    if trainer.label_smoother is not None:
        raise InputError(
            f"the trainer has label_smoothing_factor={trainer.label_smoother.epsilon}, and the loss over K "
            "columns has none: leave it out"
        )
    if scores is not None and not callable(scores):
        raise InputError(f"scores={scores!r}, expected a function, as scores=lambda outputs: outputs.logits")
    callback = add_callbacks(trainer, rule, seed, run)
    name = type(trainer).__name__
    callback.if_unused = (
        f"{name} computes its loss itself and did not use the one that attach brought. For trainers of "
        "sentence-transformers use negwise.integrations.sentence_transformers or cross_encoder; else let compute_loss "
        f"of {name} call super().compute_loss, or hold a KCrossEntropy in the model"
    )
    trainer.compute_loss_func = KLossFunction(callback, scores, in_batch, given)
    # The loss is a mean over its micro-batch on one rank. The trainer takes a compute_loss_func to have divided by the
    # rows of all micro-batches and ranks: it would not divide by the accumulation, and multiply by the ranks.
    trainer.loss_is_scaled_for_ga = False
    trainer.args.average_tokens_across_devices = False
    if in_batch:  # the trainer evaluates a loss without labels where there are none to look for
        trainer.can_return_loss, trainer.label_names = True, []
        logging.getLogger("transformers.trainer").addFilter(_not_about_labels)
    return callback


def _not_about_labels(record: logging.LogRecord) -> bool:
    """Leave out what the trainer says at each step of a loss that was attached without labels."""
    return "`compute_loss_func` is defined but `labels=None`" not in str(record.msg)


class KLossFunction:
    """``compute_loss_func`` of a trainer."""

    def __init__(
        self, callback: KTrainerCallback, scores: Callable[[Any], Tensor] | None, in_batch: bool, given: int
    ) -> None:
        self.callback, self.scores, self.in_batch = callback, scores, in_batch
        self.loss = KCrossEntropy(given=given)
        self.loss.eval_sums = callback.eval_sums
        if in_batch:
            self.loss.more = "a larger batch"

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        del num_items_in_batch
        scores = _logits(outputs) if self.scores is None else self.scores(outputs)
        if not isinstance(scores, Tensor) or scores.dim() != 2:
            came = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InputError(f"scores are {came}; expected a tensor (rows, columns): pass attach(trainer, scores=...)")
        if self.in_batch:
            if scores.shape[1] < len(scores):
                raise InputError(
                    f"in_batch=True and scores have shape {tuple(scores.shape)}; expected a column for each row, the "
                    "positive of row b at column b. For labels of their own leave in_batch out"
                )
            labels = torch.arange(len(scores), device=scores.device)
        elif labels is None:
            raise InputError(
                "the loss got no labels, the column of each row's positive. The trainer drops a column that the "
                "model's forward does not name: pass TrainingArguments(label_names=['labels'], "
                "remove_unused_columns=False), or attach(trainer, rule, in_batch=True) where the positive of row b is "
                "column b"
            )
        self.loss.control = self.callback.control
        self.loss.train(torch.is_grad_enabled())
        return self.loss(scores, labels)


def _logits(outputs: Any) -> Tensor:
    logits = outputs.get("logits") if isinstance(outputs, dict) else getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor):
        names = ", ".join(outputs) if isinstance(outputs, dict) else type(outputs).__name__
        raise InputError(f"the model's outputs have no logits ({names}): pass attach(trainer, rule, scores=...)")
    return logits

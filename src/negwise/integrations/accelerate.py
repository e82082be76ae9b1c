"""K in a loop with accelerate: ``attach(accelerator, loss, optimizer)`` after ``accelerator.prepare``.

Plain torch needs no file of its own: ``KInfoNCE("online", optimizer=optimizer)`` steps along with its optimizer.
"""

from __future__ import annotations

from typing import TypeVar

from negwise.errors import InputError, require
from negwise.integrations.k_losses import HoldsControl

require("accelerate", extra="accelerate")

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer

Loss = TypeVar("Loss", bound=HoldsControl)


def attach(accelerator: Accelerator, loss: Loss, optimizer: AcceleratedOptimizer) -> Loss:
    """Let ``loss``, a `KInfoNCE` or `KCrossEntropy`, step along with the prepared ``optimizer``.

    A step ends where gradients are complete, so micro-batches share its K. ``accelerator.save_state`` saves the state
    of the rule too. ``accelerator.log(loss.logs(), step=...)`` has K in each tracker.
    """
    if not isinstance(accelerator, Accelerator):
        raise InputError(f"attach got a {type(accelerator).__name__}, expected the Accelerator")
    if not isinstance(loss, HoldsControl):
        raise InputError(f"attach got a {type(loss).__name__}, expected a KInfoNCE or KCrossEntropy with its rule")
    if not isinstance(optimizer, AcceleratedOptimizer):
        raise InputError(
            f"attach got a {type(optimizer).__name__}, expected the optimizer that accelerator.prepare returns: only "
            "that one knows when gradients are complete"
        )
    loss.follow_optimizer(optimizer)
    accelerator.register_for_checkpointing(loss.held)
    return loss

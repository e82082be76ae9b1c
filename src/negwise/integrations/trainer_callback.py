"""K in a Hugging Face ``Trainer``: a callback that runs before the reporters, and one that keeps its state.

Reporters log what they find when their turn comes, so the first callback runs before all others. The state is known to
be wanted after all others have spoken, so the second one runs last. It goes to ``TrainerState.stateful_callbacks``,
which the trainer writes to each checkpoint as JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelerate.state import GradientState
from torch.utils.data import BatchSampler
from transformers import Trainer, TrainerCallback

from negwise import distributed
from negwise.errors import InputError
from negwise.integrations.eval_auc import EvalSums, score_logs
from negwise.integrations.k_losses import HoldsControl
from negwise.integrations.run_folder_log import make_run_log, split_of_prefix, write_step
from negwise.integrations.step_control import StepControl
from negwise.protocols import Rule

STATE = "negwise"


class KTrainerCallback(TrainerCallback):  # type: ignore[misc]
    """Tells a `StepControl` which step runs, and puts K and the AUC into the trainer's logs."""

    def __init__(self, trainer: Trainer, rule: str | Rule, seed: int, run: str | Path | None) -> None:
        self.rule, self.seed = rule, seed
        self.control = self._new_control(None)
        self.eval_sums = EvalSums(rows_of_its_own)
        self.losses: list[HoldsControl] = []  # of the model's own
        self.if_unused = ""
        """An error to raise where the first step ends and no loss has used K; empty where that may be."""
        self.at_batch_end: list[Callable[[], None]] = []
        """Called after each batch, of training and of an evaluation."""
        self._found: dict[str, float] = {}
        args = trainer.args
        settings = {"framework": type(trainer).__module__.split(".")[0], "batch": args.per_device_train_batch_size}
        settings |= {"learning_rate": args.learning_rate, "accumulation": args.gradient_accumulation_steps}
        self.log = make_run_log(run, rule, seed, settings)
        self._asked_at_start = args.eval_on_start
        self._can_evaluate = trainer.eval_dataset is not None

    def tell(self, losses: list[HoldsControl]) -> None:
        """The model's own ``losses`` have their K from here."""
        self.losses = losses
        for loss in losses:
            loss.set_control(self.control)
            loss.eval_sums = self.eval_sums

    def _new_control(self, total_steps: int | None) -> StepControl:
        return StepControl(self.rule, total_steps, self.seed, by_call=False)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del control
        self.control = self._new_control(state.max_steps)
        saved = state.stateful_callbacks.pop(STATE, None)
        if saved is not None:
            self._resume(saved, state.global_step)
        self.tell(self.losses)
        # Without an evaluation before the first update, what a pretrained model knew would count as learned.
        wanted = self._can_evaluate and str(getattr(args.eval_strategy, "value", args.eval_strategy)) != "no"
        args.eval_on_start = self._asked_at_start or (wanted and state.global_step == 0)
        if self.log is not None:
            self.log.begin(state.global_step)

    def _resume(self, saved: dict[str, Any], step: int) -> None:
        if saved["step"] + 1 == step:
            self.control.load_state_dict(saved)
            return
        self.control.check_same_training(saved)
        self.control.say_once(
            "stale",
            f"the checkpoint is that of step {step}, and K in it that of step {saved['step'] + 1}. A callback that was "
            "added after attach asked for this checkpoint: add it before attach",
        )

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control
        self.control.begin(state.global_step)

    def on_substep_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self._end_batch()
        self.control.next_batch()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        if self.if_unused and not self.control.counted:
            raise InputError(self.if_unused)
        self.if_unused = ""
        self._end_batch()
        self.control.end()

    def on_prediction_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, state, control
        self._end_batch()

    def _end_batch(self) -> None:
        for call in self.at_batch_end:
            call()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        del args, control
        if logs is None:
            return
        more: dict[str, float] = {}
        if "loss" in logs:
            more = write_step(self.log, self.control, state.global_step)
        elif (prefix := _prefix_of(logs)) is not None:
            more = self._found = self._finish_evaluation(prefix, state.global_step)
        logs.update(more)
        if more and state.log_history:
            state.log_history[-1].update(more)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        del args, state, control
        if metrics is not None:  # the trainer looks up metric_for_best_model here
            metrics.update(self._found)
        self._found = {}

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:
        del args, control
        if metrics is not None and (prefix := _prefix_of(metrics)) is not None:
            metrics.update(self._finish_evaluation(prefix, state.global_step))

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        del control
        self.control.check_losses()
        if self.log is not None and model is not None:
            self.log.end(state.global_step, model, str(args.output_dir))

    def _finish_evaluation(self, prefix: str, step: int) -> dict[str, float]:
        found = self.eval_sums.finish()
        if found is None:
            return {}
        scores, reliability = found
        if scores.auc is not None and split_of_prefix(prefix) != "train":
            self.control.evaluated(scores.auc, reliability)
        if self.log is not None:
            self.log.evaluation(step, split_of_prefix(prefix), scores)
        return score_logs(prefix, scores)


class KStateCallback(TrainerCallback):  # type: ignore[misc]
    """Puts the controller's state where the trainer saves it, whenever a checkpoint may follow."""

    def __init__(self, first: KTrainerCallback) -> None:
        self.first = first

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args
        if control.should_save:
            state.stateful_callbacks[STATE] = self.first.control.state_dict()

    on_epoch_end = on_step_end

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        del args, control  # a checkpoint of the best model is decided on after this
        if state.global_step:
            state.stateful_callbacks[STATE] = self.first.control.state_dict()


def add_callbacks(trainer: Trainer, rule: str | Rule, seed: int | None, run: str | Path | None) -> KTrainerCallback:
    """Both callbacks of ``trainer``; the seed of the draws is the trainer's, if none is given."""
    if any(isinstance(callback, KTrainerCallback) for callback in trainer.callback_handler.callbacks):
        raise InputError("this trainer has a rule for K already: attach was called twice. Call it once")
    callback = KTrainerCallback(trainer, rule, trainer.args.seed if seed is None else seed, run)
    trainer.callback_handler.callbacks.insert(0, callback)
    trainer.add_callback(KStateCallback(callback))
    return callback


def _prefix_of(logs: dict[str, Any]) -> str | None:
    """``eval`` of ``eval_loss``. The trainer's own is the shortest: ``compute_metrics`` may add ``eval_mlm_loss``."""
    found = (name.removesuffix("_loss") for name in logs if name.endswith("_loss"))
    return min(found, key=len, default=None)


def rows_of_its_own(rows: int) -> int:
    """How many of a batch's ``rows`` on this rank are rows of the data.

    So that all ranks have batches of one size, ``accelerate`` fills the last ones up with rows from the beginning. It
    knows how many rows the last batches of all ranks have of their own, and those come first, rank by rank. It does not
    where some rows are left out.
    """
    at = GradientState()
    if distributed.world_size() == 1 or not at.end_of_dataloader or at.remainder <= 0:
        return rows
    batches = getattr(at.active_dataloader.batch_sampler, "batch_sampler", None)
    if not isinstance(batches, BatchSampler) or type(batches).__iter__ is not BatchSampler.__iter__:
        return rows
    if batches.drop_last:
        return rows
    return min(max(at.remainder - distributed.process_rank() * rows, 0), rows)

"""The hooks of the Lightning callback, for ``lightning`` and ``pytorch_lightning``, each with classes of its own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from negwise.errors import InputError
from negwise.integrations.eval_auc import EvalSums, score_logs
from negwise.integrations.k_losses import HoldsControl
from negwise.integrations.run_folder_log import make_run_log, write_step
from negwise.integrations.step_control import StepControl
from negwise.protocols import Rule
from negwise.records import Scores


class KHooks:
    """K from ``rule`` for every `KInfoNCE` and `KCrossEntropy` of the module; K and the AUC in each logger.

    The losses are the module's own, made without a rule: ``self.loss = KInfoNCE()``. ``k``, ``k_used`` and ``win_rate``
    are logged every ``log_every_n_steps`` steps; a validation gives ``val_auc`` with its error and counts, which
    ``ModelCheckpoint(monitor="val_auc")`` can use. Several validation loaders give an AUC each: those in a dictionary
    by their names, as ``{"val": ..., "train": ...}``, those in a list as ``val``, ``val_1``. The sanity check becomes a
    whole validation: the one before the first update. ``total_steps`` is needed where the trainer does not know it.
    ``run`` is a folder for ``negwise report``.
    """

    def __init__(
        self,
        rule: str | Rule = "online",
        *,
        total_steps: int | None = None,
        seed: int = 0,
        run: str | Path | None = None,
    ) -> None:
        super().__init__()
        self.rule, self.total_steps, self.seed = rule, total_steps, seed
        self.control = StepControl(rule, total_steps, seed, by_call=False)
        self._losses: list[HoldsControl] = []
        self._eval_sums: dict[int, EvalSums] = {}  # of each loader
        self._updates = 0  # of all optimizers, when the batch began
        self.run_log = make_run_log(run, rule, seed, {"framework": "lightning"})
        self._saved: dict[str, Any] | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        losses = [one for one in pl_module.modules() if isinstance(one, HoldsControl)]
        if not losses:
            raise InputError(
                f"{type(pl_module).__name__} has no loss that K is for. Type self.loss = KInfoNCE(), or "
                "KCrossEntropy() in the place of nn.CrossEntropyLoss(), in its __init__; import them from "
                "negwise.integrations"
            )
        self._losses = losses
        for loss in losses:
            loss.set_control(self.control)
        if stage == "fit" and not trainer.fast_dev_run and trainer.ckpt_path is None:
            trainer.num_sanity_val_steps = math.inf

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        total = self.total_steps
        if total is None and 0 < trainer.estimated_stepping_batches < math.inf:
            total = int(trainer.estimated_stepping_batches)
        control = StepControl(self.rule, total, self.seed, by_call=False)
        if self._saved is not None:
            control.load_state_dict(self._saved)
            self._saved = None
        elif (at_start := self.control.validation) is not None:
            control.evaluated(*at_start)
        self.control = control
        for loss in self._losses:
            loss.control = control
        done = self._steps_done(trainer)
        if self.run_log is not None and done:  # a new run began with its first evaluation
            self.run_log.begin(done)
        elif self.run_log is not None and not self.run_log.begun:
            self.run_log.begin(0)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        del pl_module, batch, batch_idx
        self._updates = trainer.global_step
        if self.control.running:
            self.control.next_batch()
        else:
            self.control.begin(self._steps_done(trainer))

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        del outputs, batch, batch_idx
        if trainer.global_step == self._updates:
            return  # gradients accumulate
        # Where several optimizers have stepped, global_step went on by as many. It is one step of K.
        self.control.end()
        done, every = self.control.steps_ended, trainer.log_every_n_steps
        if every and done % every == 0:  # when Lightning logs what training_step logged, in one row with it
            pl_module.log_dict(write_step(self.run_log, self.control, done), on_step=True, on_epoch=False)

    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        del trainer, pl_module, batch, batch_idx
        sums = self._eval_sums.setdefault(dataloader_idx, EvalSums())
        for loss in self._losses:
            loss.eval_sums = sums

    on_test_batch_start = on_validation_batch_start

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if trainer.ckpt_path is not None:  # a few batches before training goes on: no evaluation
            for number in sorted(self._eval_sums):
                self._eval_sums[number].finish()
            return
        if self.run_log is not None:
            self.run_log.begin(0)
        self._log(trainer, self._finish(trainer, "val"), 0)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            pl_module.log_dict(self._finish(trainer, "val"))

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.log_dict(self._finish(trainer, "test"))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        done = self._steps_done(trainer)
        values = write_step(self.run_log, self.control, done)
        if trainer.log_every_n_steps:
            self._log(trainer, values, done - 1)
        if self.run_log is not None:
            self.run_log.end(done, pl_module, str(trainer.default_root_dir))

    def state_dict(self) -> dict[str, Any]:
        return self.control.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict

    @property
    def last_scores(self) -> Scores | None:
        """The scores of the last evaluation."""
        return self._scores

    _scores: Scores | None = None

    def _finish(self, trainer: Any, split: str) -> dict[str, float]:
        """The AUC of each loader since the last call, by its name in logs."""
        logs: dict[str, float] = {}
        names = _loader_names(trainer, split)
        for number in sorted(self._eval_sums):
            found = self._eval_sums[number].finish()
            if found is None:
                continue
            scores, reliability = found
            name = names.get(number, f"{split}_{number}" if number else split)
            if name != "train":
                self._scores = scores
                if split == "val" and scores.auc is not None:
                    self.control.evaluated(scores.auc, reliability)
            if self.run_log is not None and self.run_log.begun:
                self.run_log.evaluation(self._steps_done(trainer), name, scores)
            logs |= score_logs(name, scores)
        return logs

    def _steps_done(self, trainer: Any) -> int:
        """Steps of K that have ended; where training goes on without their number, what the trainer counts."""
        return self.control.steps_ended if self.control.step >= 0 else trainer.global_step

    def _log(self, trainer: Any, values: dict[str, float], step: int) -> None:
        if values:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)


def _loader_names(trainer: Any, split: str) -> dict[int, str]:
    """The names of the loaders that were passed in a dictionary."""
    if split == "val" and trainer.state.fn != "fit":  # val_dataloaders are those of the fit before
        return {}
    loaders = trainer.val_dataloaders if split == "val" else trainer.test_dataloaders
    return dict(enumerate(map(str, loaders))) if isinstance(loaders, dict) else {}

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
    ``ModelCheckpoint(monitor="val_auc")`` can use. The sanity check becomes a whole validation: the one before the
    first update. ``total_steps`` is needed where the trainer does not know it. ``run`` is a folder for
    ``negwise report``.
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
        self.eval_sums = EvalSums()
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
        for loss in losses:
            loss.control, loss.eval_sums = self.control, self.eval_sums
        if stage == "fit" and not trainer.fast_dev_run:
            trainer.num_sanity_val_steps = math.inf

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
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
        for loss in pl_module.modules():
            if isinstance(loss, HoldsControl):
                loss.control = control
        if self.run_log is not None and trainer.global_step:  # a new run began with its first evaluation
            self.run_log.begin(trainer.global_step)
        elif self.run_log is not None and not self.run_log.begun:
            self.run_log.begin(0)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        del pl_module, batch, batch_idx
        if self.control.runs(trainer.global_step):
            self.control.next_batch()
        else:
            self.control.begin(trainer.global_step)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        del pl_module, outputs, batch, batch_idx
        if self.control.runs(trainer.global_step):
            return  # gradients accumulate
        self.control.end()
        if trainer.global_step % trainer.log_every_n_steps == 0:
            self._log(trainer, write_step(self.run_log, self.control, trainer.global_step))

    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        del pl_module
        if self.run_log is not None:
            self.run_log.begin(0)
        self._log(trainer, self._finish(trainer, "val"))

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            pl_module.log_dict(self._finish(trainer, "val"))

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        pl_module.log_dict(self._finish(trainer, "test"))

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._log(trainer, write_step(self.run_log, self.control, trainer.global_step))
        if self.run_log is not None:
            self.run_log.end(trainer.global_step, pl_module, str(trainer.default_root_dir))

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
        found = self.eval_sums.finish()
        if found is None:
            return {}
        self._scores, reliability = found
        if split == "val" and self._scores.auc is not None:
            self.control.evaluated(self._scores.auc, reliability)
        if self.run_log is not None and self.run_log.begun:
            self.run_log.evaluation(trainer.global_step, split, self._scores)
        return score_logs(split, self._scores)

    def _log(self, trainer: Any, values: dict[str, float]) -> None:
        if values:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=trainer.global_step)

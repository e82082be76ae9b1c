"""A run is a sequence of states. Each follows from the one before and from (seed, step), and from nothing else.

A checkpoint is a state, its weights, its optimizer and the state of its sampler. So a run can resume from any
checkpoint and end with the same weights. B rows of a global batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from negwise import distributed
from negwise.losses import raise_deferred_errors
from negwise.metrics import Ranks, reliability_of_ranks
from negwise.protocols import VALIDATION_KS
from negwise.records import RESULT, BestStep, Recommended, RunLog, RunResult, Scores, StepRecord, decode, read_run
from negwise.training import checkpoint
from negwise.training.batches import BatchPreparer, Prefetcher, draws_ahead, stateful_samplers
from negwise.training.cuda_graphs import GraphedStep
from negwise.training.evaluation import Evaluation
from negwise.training.forward_pass import COUNTS, StepInputs, sum_rows
from negwise.training.journal import Journal
from negwise.training.k_control import KController
from negwise.training.launch import SignalGuard, Stopped, reseed
from negwise.training.optimization import Optimization
from negwise.training.run_folder import write_ranks, write_result
from negwise.training.settings import Settings

ShouldStop = Callable[[RunLog], bool]
"""Whether the log says that the run may end."""


@dataclass(frozen=True)
class RunState:
    """A run after ``step`` updates, in plain values. ``k`` is the state of the rule, see `KController`."""

    step: int = 0
    k: dict[str, Any] | None = None
    evaluated: int = -1  # the step of the last evaluation
    best: dict[str, Any] | None = None  # step, metric, its value, and the evaluations of that step
    seconds: float = 0.0  # spent before this process
    paused: bool = False


@dataclass(eq=False)
class Run:
    """The parts of a run, as `negwise.training.fit` puts them together, and its state, which is all that changes."""

    out: Path
    fabric: Any
    model: nn.Module
    step_module: Any  # `TrainingStep`, set up by Fabric
    optimization: Optimization
    batches: BatchPreparer
    controller: KController
    evaluation: Evaluation
    settings: Settings
    journal: Journal
    signals: SignalGuard
    header: Mapping[str, Any]
    state: RunState
    graphs: bool = False
    checkpoints: bool = True  # a run that is only timed writes none
    run_step: Callable[[StepInputs], Tensor] = field(init=False)  # `update_weights`, eagerly or as a CUDA graph
    should_stop: ShouldStop | None = field(default=None, init=False)
    until: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.began: float | None = None
        # Since the last record: sums of this rank's rows, and K of each step.
        self.sums = torch.zeros(len(COUNTS), dtype=torch.float64, device=self.fabric.device)
        self.ks: list[float] = []
        self.stop_agreed = False
        self.last_ranks: tuple[int, Ranks] | None = None  # of validation, and the step that they belong to
        self.run_step = lambda inputs: self.update_weights(inputs.to(self.fabric.device))
        if self.graphs:
            self.run_step = GraphedStep(self.update_weights, self.fabric.device)
        self.stateful = stateful_samplers(self.batches.sampler)
        # Prefetch only where a thread helps: on a CPU the step itself needs every core, and with several processes the
        # thread's messages could come between those of the step. A sampler that asks the model, or what was pushed,
        # has to wait for the step to end.
        self.prefetches = (
            self.fabric.device.type == "cuda"
            and self.fabric.world_size == 1
            and draws_ahead(self.batches.sampler)
            and (self.controller.open_loop or self.settings.lag >= 2)
        )
        self.prefetcher = Prefetcher(self.batches.prepare)

    @property
    def end(self) -> int:
        """The step at which this call ends."""
        return self.settings.steps if self.until is None else min(self.until, self.settings.steps)

    def go(self, until: int | None, should_stop: ShouldStop | None) -> RunResult:
        """Train until the end, or until the pause; returns the result so far. May be called again after a pause."""
        self.until, self.should_stop = until, should_stop
        self.model.train()
        self.began = time.monotonic()
        try:
            return self.loop()
        finally:
            self.state = replace(self.state, seconds=self.seconds())
            self.began = None

    def close(self) -> None:
        """Let go of graphs and their memory now, and not when garbage is next collected."""
        self.prefetcher.close()
        del self.run_step, self.prefetcher

    def loop(self) -> RunResult:
        while True:
            step = self.state.step
            if self.settings.evaluates(step) and self.state.evaluated < step:
                self.evaluate()
                self.save()
            if step == self.settings.steps or self.ends_early():
                return self.finish()
            if step >= self.end:
                return self.pause()
            self.train_step()
            if self.settings.saves(self.state.step):
                self.save()
            self.stop_if_asked()

    def ends_early(self) -> bool:
        """Right after an evaluation, where the log says so. Every rank reads the same log."""
        if self.should_stop is None or self.state.evaluated != self.state.step:
            return False
        self.journal.sync()
        self.fabric.barrier()
        return self.should_stop(read_run(self.out))

    def train_step(self) -> None:
        """One step: K from the rule, negatives, loss, gradients, weights."""
        step, fabric = self.state.step, self.fabric
        k = self.controller.k(step)
        ahead = self.prefetches and step + 1 < self.settings.steps
        rows, positives, inputs = self.prefetcher.get(step, k, self.controller.k(step + 1) if ahead else None)
        counted = int(inputs.counted)
        total = rows if self.batches.mask_items is None else distributed.total_rows(counted, fabric.device)
        # DDP averages over ranks what should be the sum over all rows, over their number.
        inputs.share.fill_(fabric.world_size / total if counted else 0.0)
        reseed(self.settings.seed, step, fabric.global_rank, fabric.device)
        self.optimization.set_rates(step / max(self.settings.steps - 1, 1))
        sums = self.run_step(inputs)
        self.push(positives)
        self.ks.append(k)
        self.state = replace(self.state, step=step + 1, paused=False)
        if not self.controller.open_loop:
            self.controller.observe(step, distributed.total(sums))
        self.sums += sums
        if self.settings.logs(self.state.step):
            self.record()

    def update_weights(self, inputs: StepInputs) -> Tensor:
        """Loss, gradients and weights of a step whose inputs are on the device; returns its counts, see `sum_rows`."""
        rows = self.step_module(inputs)
        self.optimization.optimizer.zero_grad()
        self.fabric.backward(rows.loss.sum() * inputs.share.to(rows.loss.dtype))
        self.optimization.optimizer.step()
        return sum_rows(rows, inputs.counted)

    def push(self, positives: Tensor) -> None:
        """Hand the positives of the step, those of all ranks, to samplers that remember them."""
        if self.stateful:
            gathered = distributed.gather(positives.to(self.fabric.device)).cpu()
            for sampler in self.stateful:
                sampler.push(gathered)

    def record(self) -> None:
        """Log the steps since the last record, as one."""
        stop = self.sums.new_full((1,), float(self.signals.received))
        *sums, stops = distributed.total(torch.cat((self.sums, stop))).tolist()
        raise_deferred_errors()  # now that the GPU was waited for
        self.stop_agreed = stops > 0
        seen = dict(zip(COUNTS, sums, strict=True))
        loss, log_k1 = seen["loss"] / seen["queries"], seen["log_k1"] / seen["queries"]
        drawn = seen["pairs"] - seen["given_pairs"]
        given = seen["given_pairs"] > 0
        self.journal.step(
            StepRecord(
                step=self.state.step,
                time=round(self.seconds(), 3),
                k=sum(self.ks) / len(self.ks),
                k_used=seen["pairs"] / seen["queries"],
                loss=loss,
                win_rate=_share(seen["wins"], seen["pairs"]),
                log_k1=log_k1,
                mi_bound=None if self.settings.correct else log_k1 - loss,
                hit_rate=_share(seen["hits"], seen["rows"]),
                given_win_rate=_share(seen["given_wins"], seen["given_pairs"]),
                drawn_win_rate=_share(seen["wins"] - seen["given_wins"], drawn) if given else None,
                **self.controller.reason(self.state.step - 1),
            )
        )
        self.sums.zero_()
        self.ks.clear()

    def evaluate(self) -> None:
        """Evaluate the training and validation splits, and remember the best validation value of the metric."""
        step, metric = self.state.step, self.evaluation.metric
        between = self.between_chunks(self.stop_if_asked)
        names = [name for name in ("train", "val") if name in self.evaluation.splits]
        ranks = {name: self.evaluation.ranks(name, self.model, between) for name in names}
        found = {name: self.evaluation.scores(one) for name, one in ranks.items()}
        for name, scores in found.items():
            self.journal.evaluation(step, name, scores)
        value = found["val"].value(metric) if "val" in found else None
        best = self.state.best
        if value is not None and (best is None or value > best["value"]):
            best = {"step": step, "metric": metric, "value": value}
            best |= {name: asdict(scores) for name, scores in found.items()}
        self.state = replace(self.state, evaluated=step, best=best)
        self.last_ranks = (step, ranks["val"]) if "val" in ranks else None
        auc = found["val"].auc if "val" in found else None
        if auc is not None and not self.controller.open_loop:
            self.controller.evaluated(step, auc, reliability_of_ranks(ranks["val"], VALIDATION_KS).tolist())

    def ranks(self, split: str) -> Ranks:
        """The ranks of a split with the weights of now; those of an evaluation that was just made are taken as such."""
        if split == "val" and self.last_ranks is not None and self.last_ranks[0] == self.state.step:
            return self.last_ranks[1]
        return self.evaluation.ranks(split, self.model, self.between_chunks(self.leave_if_asked))

    def between_chunks(self, stop: Callable[[], None]) -> Callable[[], None]:
        """What runs between the chunks of an evaluation, where ``stop`` may end it."""

        def between() -> None:
            self.agree()
            stop()

        return between

    def agree(self) -> None:
        """Let every rank know whether one of them was asked to stop; all have to call it."""
        if self.fabric.world_size > 1:
            asked = torch.tensor(float(self.signals.received), device=self.fabric.device)
            self.stop_agreed = bool(distributed.total(asked) > 0)

    @property
    def must_stop(self) -> bool:
        """Several ranks have to agree, which they do when they log or evaluate; one process may stop where it is."""
        return self.stop_agreed or (self.signals.received and self.fabric.world_size == 1)

    def stop_if_asked(self) -> None:
        """Where a stop was asked for: save, and leave."""
        if self.must_stop:
            self.save()
            self.leave_if_asked()

    def leave_if_asked(self) -> None:
        """Where a stop was asked for: say how to resume, and end."""
        if self.must_stop:
            self.journal.event("stop", self.state.step)
            raise Stopped(
                f"stopped after step {self.state.step} of {self.settings.steps}, which is saved in {self.out}. "
                "Type the same command again to resume"
            )

    def save(self) -> None:
        """Write a checkpoint. The log is flushed first, so that it has every step of the checkpoint."""
        if self.ks:
            self.record()
        self.journal.sync()
        if self.fabric.global_rank == 0 and self.checkpoints:
            step = self.state.step
            state = replace(self.state, seconds=self.seconds(), k=self.controller.state_dict(step))
            body = {**self.header, "state": asdict(state), "best": state.best}
            samplers = {str(at): sampler.state_dict() for at, sampler in enumerate(self.stateful)}
            checkpoint.write(self.out, step, self.model, self.optimization.optimizer.optimizer, body, samplers)
        self.fabric.barrier()

    def pause(self) -> RunResult:
        """Save the run at a step before its end; the same call with another ``until`` continues it."""
        self.state = replace(self.state, paused=True)
        self.save()
        self.journal.event("pause", self.state.step)
        return self.result(self.best_evaluations(), finished=False)

    def finish(self) -> RunResult:
        """Evaluate the test split with the best weights, and write ``test_ranks.safetensors`` and ``result.json``."""
        last, evaluations = self.state.step, self.best_evaluations()
        recommended: Recommended | None = None
        if "test" in self.evaluation.splits:
            checkpoint.load_weights(self.model, checkpoint.read_checkpoint(self.out, self.kept).folder)
            between = self.between_chunks(self.leave_if_asked)
            try:
                ranks = self.evaluation.ranks("test", self.model, between)
                evaluations["test"] = self.evaluation.scores(ranks)
                if self.fabric.global_rank == 0:
                    write_ranks(self.out, ranks)
                recommended = self.evaluation.recommended(self.model, between)
            finally:
                checkpoint.load_weights(self.model, checkpoint.read_checkpoint(self.out, last).folder)
        result = replace(self.result(evaluations), recommended=recommended)
        if self.fabric.global_rank == 0:
            write_result(self.out / RESULT, result)
        self.journal.event("end", last)
        self.fabric.barrier()
        return result

    @property
    def kept(self) -> int:
        """The step whose weights are kept: the best one, else the last."""
        return self.state.step if self.state.best is None else int(self.state.best["step"])

    def best_evaluations(self) -> dict[str, Scores]:
        best = self.state.best or {}
        return {name: decode(Scores, best[name], str(self.out)) for name in ("train", "val") if name in best}

    def result(self, evaluations: dict[str, Scores], finished: bool = True) -> RunResult:
        best = self.state.best
        val = evaluations.get("val")
        kept = (
            None
            if best is None
            else BestStep(best["step"], None if val is None else val.auc, best["metric"], best["value"])
        )
        return RunResult(
            steps=self.state.step,
            best=kept,
            evaluations=evaluations,
            weights=f"{checkpoint.FOLDER}/{self.kept}",
            parameters=sum(weight.numel() for weight in self.model.parameters()),
            seconds=round(self.seconds(), 3),
            device=self.fabric.device.type,
            precision=self.settings.precision,
            graphs=self.graphs,
            threads=self.header["threads"],
            processes=self.fabric.world_size,
            finished=finished,
        )

    def seconds(self) -> float:
        """Time spent on the run, by this process and those before it; pauses do not count."""
        return self.state.seconds + (0.0 if self.began is None else time.monotonic() - self.began)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole and not math.isnan(part) else None

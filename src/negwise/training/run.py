"""A run is a sequence of states. Each follows from the one before and from (seed, step), and from nothing else.

A checkpoint is a state, its weights and its optimizer; that is why a run can be taken up at any of them and end with
the same weights. B rows of a global batch.
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

from negwise import distributed, metrics
from negwise.draws import Key
from negwise.losses import raise_deferred_errors
from negwise.protocols import Draw, Negatives, Observation, OpenLoopRule, Planner, Rule, Sampler, TableModel
from negwise.records import Run as Log
from negwise.records import read_run
from negwise.training import checkpoint
from negwise.training.ahead import Ahead
from negwise.training.asked import Asked
from negwise.training.batches import Examples, Hide, Ints, Order, fetch, share
from negwise.training.evaluate import recommend, standings
from negwise.training.folder import RESULT, write_json
from negwise.training.journal import Journal
from negwise.training.judging import Judged
from negwise.training.launch import reseed
from negwise.training.ranks import write_ranks
from negwise.training.recorded import Recorded, padded
from negwise.training.settings import Settings
from negwise.training.step import TOTALS, draw, plan, totals
from negwise.training.stopping import Stopped, Stopping

Enough = Callable[[Log], bool]
"""Whether what is on record is enough, so that the run may end."""


@dataclass(frozen=True)
class State:
    """A run after ``step`` updates, in plain values. The rule next sees ``wins``, ``pairs`` and ``val_auc``."""

    step: int = 0
    rule: dict[str, Any] = field(default_factory=dict)
    wins: float = 0.0
    pairs: int = 0
    val_auc: float | None = None
    evaluated: int = -1  # the step of the last evaluation
    best: dict[str, Any] | None = None  # step, auc and the evaluations of that step
    seconds: float = 0.0  # spent before this process


@dataclass(eq=False)
class Run:
    """The parts of a run, as `negwise.training.fit` puts them together, and its state, which is all that changes."""

    out: Path
    fabric: Any
    model: nn.Module
    stepper: Any  # `Step`, set up by Fabric
    optimizer: Any
    rates: list[float]
    lr_scale: Callable[[float], float] | None
    examples: Examples
    n_items: int
    hide: Hide | None
    sampler: Sampler
    rule: Rule
    settings: Settings
    judged: Mapping[str, Judged]
    journal: Journal
    stopping: Stopping
    header: Mapping[str, Any]
    state: State
    graphs: bool = False  # steps are recorded once for each size, and replayed
    enough: Enough | None = None
    popularity: Ints | None = None

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.order = Order(len(self.examples), self.settings.batch_size, self.settings.seed)
        # Since the last record: sums of this rank's rows, and K asked at each step.
        self.sums = torch.zeros(len(TOTALS), dtype=torch.float64, device=self.fabric.device)
        self.asked: list[float] = []
        self.stop_agreed = False
        self.learner: Callable[[Asked], Tensor] = lambda asked: self.learn(asked.to(self.fabric.device))
        self.planner: Planner | None = None  # of negatives that the loss draws itself
        if self.graphs:
            self.learner = Recorded(self.learn, self.fabric.device)
            by_id = isinstance(self.model, TableModel) and not self.settings.correct
            self.planner = self.sampler if by_id and isinstance(self.sampler, Planner) else None
        # A CPU has its hands full with the step itself; several ranks take turns to speak to each other. A sampler that
        # asks the model, or what was pushed, has to wait for this step to end.
        self.looks_ahead = (
            self.fabric.device.type == "cuda"
            and self.fabric.world_size == 1
            and isinstance(self.rule, OpenLoopRule)
            and not getattr(self.sampler, "stateful", False)
        )

    def go(self) -> dict[str, Any]:
        """All that is left of the run; returns its result."""
        self.model.train()
        try:
            with Ahead(self.prepare) as self.ahead:
                return self.work()
        finally:  # graphs and their memory go now, and not when garbage is next collected
            del self.learner, self.ahead

    def work(self) -> dict[str, Any]:
        while True:
            step = self.state.step
            if self.settings.evaluates(step) and self.state.evaluated < step:
                self.evaluate()
                self.save()
            if step == self.settings.steps or self.ends_early():
                return self.finish()
            self.update()
            if self.settings.saves(self.state.step):
                self.save()
            self.pause()

    def ends_early(self) -> bool:
        """Right after an evaluation, where the log says so. Every rank reads the same log."""
        if self.enough is None or self.state.evaluated != self.state.step:
            return False
        self.journal.sync()
        self.fabric.barrier()
        return self.enough(read_run(self.out))

    @property
    def must_stop(self) -> bool:
        """Several ranks have to agree, which they do when they log or evaluate; one process may stop where it is."""
        return self.stop_agreed or (self.stopping.asked and self.fabric.world_size == 1)

    def update(self) -> None:
        """One step: K from the rule, negatives, loss, gradients, weights."""
        state, fabric = self.state, self.fabric
        seen = Observation(state.step, self.settings.steps, state.wins, state.pairs, state.val_auc)
        k, rule_state = self.rule.update(seen, state.rule)
        rows, asked = self.ahead.get(state.step, k, self.next_k(state.step, rule_state))
        counted = int(asked.counted)
        total = rows if self.hide is None else distributed.total_rows(counted, fabric.device)
        # DDP averages over ranks what should be the sum over all rows, over their number.
        asked.share.fill_(fabric.world_size / total if counted else 0.0)
        reseed(self.settings.seed, state.step, fabric.global_rank, fabric.device)
        self.scale_rates(state.step)
        sums = self.learner(asked)
        self.asked.append(k)
        self.state = replace(state, step=state.step + 1, rule=rule_state, wins=0.0, pairs=0, val_auc=None)
        self.account(sums)

    def learn(self, asked: Asked) -> Tensor:
        """Loss, gradients and weights of a step whose work is on the device; what it counted, see `totals`."""
        loss, wins, pairs = self.stepper(asked)
        self.optimizer.zero_grad()
        self.fabric.backward(loss.sum() * asked.share.to(loss.dtype))
        self.optimizer.step()
        return totals(loss, wins, pairs, asked.counted)

    def next_k(self, step: int, rule_state: dict[str, Any]) -> float | None:
        """K of the step after ``step``, where it is known already and of use."""
        if not self.looks_ahead or step + 1 >= self.settings.steps:
            return None
        return self.rule.update(Observation(step + 1, self.settings.steps), rule_state)[0]

    def prepare(self, step: int, k: float) -> tuple[int, Asked]:
        """How many rows the global batch of ``step`` has, and the work on this rank's part of them."""
        key, rows = Key(self.settings.seed, step), self.order.batch(step)
        mine = share(len(rows), self.fabric.global_rank, self.fabric.world_size)
        batch = fetch(self.examples, rows, mine, key, self.hide)
        if self.planner is None:
            drawn: Negatives | Draw = draw(self.sampler, batch, k, key, self.fabric.device)
        else:
            drawn = plan(self.planner, batch, k, key)
        asked = Asked.of(batch.query, batch.positives, drawn, self.model, self.n_items, self.settings.correct)
        asked.counted.fill_(batch.counted)
        return len(rows), padded(asked) if self.graphs else asked

    def scale_rates(self, step: int) -> None:
        if self.lr_scale is not None:
            scale = self.lr_scale(step / max(self.settings.steps - 1, 1))
            for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
                if isinstance(group["lr"], Tensor):  # where a graph looks for it
                    group["lr"].fill_(rate * scale)
                else:
                    group["lr"] = rate * scale

    def account(self, sums: Tensor) -> None:
        """Add up what the step counted; a rule that looks hears of it at once, the log when a record is due."""
        if not isinstance(self.rule, OpenLoopRule):
            seen = _named(distributed.total(sums))
            self.state = replace(self.state, wins=seen["wins"], pairs=int(seen["pairs"]))
        self.sums += sums
        if self.settings.logs(self.state.step):
            self.record()

    def record(self) -> None:
        """Log the steps since the last record, as one."""
        stop = self.sums.new_full((1,), float(self.stopping.asked))
        *sums, stops = distributed.total(torch.cat((self.sums, stop))).tolist()
        raise_deferred_errors()  # now that the GPU was waited for
        self.stop_agreed = stops > 0
        seen = dict(zip(TOTALS, sums, strict=True))
        loss, log_k1 = seen["loss"] / seen["queries"], seen["log_k1"] / seen["queries"]
        self.journal.step(
            {
                "step": self.state.step,
                "time": round(self.seconds(), 3),
                "k": sum(self.asked) / len(self.asked),
                "k_used": seen["pairs"] / seen["queries"],
                "loss": loss,
                "win_rate": seen["wins"] / seen["pairs"] if seen["pairs"] else None,
                "log_k1": log_k1,
                "mi_bound": None if self.settings.correct else log_k1 - loss,
            }
        )
        self.sums.zero_()
        self.asked.clear()

    def evaluate(self) -> None:
        """Judge the training and validation splits, and remember the best validation AUC."""
        step = self.state.step
        names = [name for name in ("train", "val") if name in self.judged]
        tallies = {name: metrics.evaluate(self.judge(name, self.pause)) for name in names}
        for name, tally in tallies.items():
            self.journal.evaluation(step, name, tally)
        auc = tallies["val"].auc.value if "val" in tallies else math.nan
        best = self.state.best
        if not math.isnan(auc) and (best is None or auc > best["auc"]):
            best = {"step": step, "auc": auc, **{name: tally.record() for name, tally in tallies.items()}}
        self.state = replace(self.state, evaluated=step, best=best, val_auc=None if math.isnan(auc) else auc)

    def judge(self, name: str, stop: Callable[[], None]) -> metrics.Ranks:
        """The standing of every positive of a split; ``stop``, `pause` or `leave`, may end the evaluation."""

        def between() -> None:
            self.agree()
            stop()

        return standings(self.model, self.judged[name], autocast=self.fabric.autocast, between=between)

    def recommend(self) -> dict[str, Any] | None:
        """What the model puts first on the test split, where popularity is known."""
        if self.popularity is None:
            return None

        def between() -> None:
            self.agree()
            self.leave()

        return recommend(
            self.model, self.judged["test"], self.popularity, autocast=self.fabric.autocast, between=between
        )

    def agree(self) -> None:
        """Let every rank know whether one of them was asked to stop; all have to call it."""
        if self.fabric.world_size > 1:
            asked = torch.tensor(float(self.stopping.asked), device=self.fabric.device)
            self.stop_agreed = bool(distributed.total(asked) > 0)

    def pause(self) -> None:
        """Where a stop was asked for: save, and leave."""
        if self.must_stop:
            self.save()
            self.leave()

    def leave(self) -> None:
        """Where a stop was asked for: say how to go on, and end."""
        if self.must_stop:
            self.journal.event("stop", self.state.step)
            raise Stopped(
                f"stopped after step {self.state.step} of {self.settings.steps}, which is saved in {self.out}. "
                "Type the same command again to go on"
            )

    def save(self) -> None:
        """Write a checkpoint. What it tells of is in the log before."""
        if self.asked:
            self.record()
        self.journal.sync()
        if self.fabric.global_rank == 0:
            state = replace(self.state, seconds=self.seconds())
            body = {**self.header, "state": asdict(state), "best": state.best}
            checkpoint.write(self.out, state.step, self.model, self.optimizer.optimizer, body)
        self.fabric.barrier()

    def finish(self) -> dict[str, Any]:
        """Judge the test split with the best weights, and write ``test_ranks.safetensors`` and ``result.json``."""
        best, last = self.state.best, self.state.step
        chosen = last if best is None else best["step"]
        recommended: dict[str, Any] | None = None
        evaluations = {name: best[name] for name in ("train", "val", "test") if best is not None and name in best}
        if "test" in self.judged:
            checkpoint.load_weights(self.model, checkpoint.read(self.out, chosen).folder)
            try:
                ranks = self.judge("test", self.leave)
                evaluations["test"] = metrics.evaluate(ranks).record()
                if self.fabric.global_rank == 0:
                    write_ranks(self.out, ranks)
                recommended = self.recommend()
            finally:
                checkpoint.load_weights(self.model, checkpoint.read(self.out, last).folder)
        result = {
            "steps": last,
            "best": None if best is None else {"step": best["step"], "auc": best["auc"]},
            "evaluations": evaluations,
            "weights": f"{checkpoint.FOLDER}/{chosen}",
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "seconds": round(self.seconds(), 3),
            "device": self.fabric.device.type,
            "precision": self.settings.precision,
            "graphs": self.graphs,
            "threads": self.header["threads"],
            "processes": self.fabric.world_size,
        }
        if recommended is not None:
            result["recommended"] = recommended
        if self.fabric.global_rank == 0:
            write_json(self.out / RESULT, result)
        self.journal.event("end", self.state.step)
        self.fabric.barrier()
        return result

    def seconds(self) -> float:
        """Time spent on the run, by this process and those before it."""
        return self.state.seconds + time.monotonic() - self.began


def _named(sums: Tensor) -> dict[str, float]:
    return dict(zip(TOTALS, sums.tolist(), strict=True))

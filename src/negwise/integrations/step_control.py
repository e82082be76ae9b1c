"""K of the step that runs, for a loop that belongs to somebody else.

The loop says which step runs (`begin`), the loss reads K and says what it saw (`draws`, `add`), the loop logs (`logs`)
and saves (`state_dict`). What the loss needs is in tensors that are written in place, so that a compiled step is one
graph whatever K is, and what it saw is added up without waiting for the device.

A closed-loop rule sees the counts of `LAG` steps before, as in `negwise.training`: by then they have arrived, and K is
the same on a CPU, on a GPU and on any number of ranks. With an open-loop rule only the logs need them, and `LAG` steps
are added up at once.
"""

from __future__ import annotations

import math
import reprlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise import distributed
from negwise.draws import Key, check_k
from negwise.errors import InputError
from negwise.host_copy import HostCopy, to_device
from negwise.integrations.rule_identity import cannot_be_told, depends_on_fraction, describe, difference, identity
from negwise.integrations.step_draws import HOST_DRAWS, draw_on_device, draw_on_host, step_numbers
from negwise.protocols import Observation, OpenLoopRule, Rule
from negwise.schedule import OnlineK, parse_rule

LAG = 8
"""Steps between what was seen and the K that it decides."""
COUNTS = ("wins", "pairs", "drawn_wins", "drawn_pairs", "hits", "rows", "queries", "log_k1", "loss")
"""What a step adds up. ``hits`` and ``rows`` are over drawn negatives, ``queries`` is the number of all rows."""
LOSS = COUNTS.index("loss")
SumsOf = Callable[[list[Any]], Tensor]
"""The sums, in that order, of what batches counted."""


class StepControl:
    """K for each optimizer step from ``rule``, a rule or its text as "online" or "ans:20".

    ``total_steps`` is the number of optimizer steps; ``online`` needs none. Past it K holds, with one warning. With
    ``by_call`` each call of a loss in training mode is a micro-batch of its own. A framework that says where a
    micro-batch ends (`next_batch`) sets it to false: what calls a loss several times for one batch, as Matryoshka does,
    then gets one draw.
    """

    def __init__(
        self, rule: str | Rule = "online", total_steps: int | None = None, seed: int = 0, *, by_call: bool = True
    ) -> None:
        self.rule: Rule = parse_rule(rule) if isinstance(rule, str) else rule
        if isinstance(rule, type) or not isinstance(self.rule, Rule):
            raise InputError(
                f"got {rule!r} for a rule, expected its text, as 'online', 'ans:20' or '8', or a rule, as AnsK(20)"
            )
        if total_steps is not None and (not _is_whole(total_steps) or total_steps < 1):
            raise InputError(f"total_steps={total_steps!r}, expected the number of optimizer steps of the training")
        Key(seed, 0)  # refuses what is no seed
        self.seed, self.by_call = seed, by_call
        self.total_steps = total_steps
        self.open_loop = isinstance(self.rule, OpenLoopRule)
        self._identity = identity(self.rule)
        self.step, self.k = -1, math.nan
        self._running = False
        self._state: dict[str, Any] = self.rule.init()
        self._before = (self.step, self.k, self._state)
        self._seen: dict[int, tuple[float, HostCopy]] = {}
        self._validation: dict[int, tuple[float, list[float]]] = {}
        self._counted = self._by_itself = False
        self._said: set[str] = set()
        self._rows = 0
        self._numbers = torch.zeros(4, dtype=torch.int64)  # as `step_draws` has them
        self._sums = torch.zeros(len(COUNTS), dtype=torch.float64)
        self._added = False  # to the sums, in the step that runs
        self._waiting: list[tuple[SumsOf, Any]] = []  # what `add_later` was told
        self._ended = 0  # how many of those are of steps that have ended
        self._unread_steps = 0  # ended since the loss was looked at
        self._log_sums = torch.zeros_like(self._sums)
        self._log_k, self._log_steps = 0.0, 0
        self._loss: HostCopy | None = None  # summed up, on its way here

    def __repr__(self) -> str:
        return f"StepControl({describe(self.rule)}, total_steps={self.total_steps}, seed={self.seed})"

    # What the loop says

    def begins_by_itself(self) -> None:
        """From now on the next step begins as soon as the one before has ended, or a state was loaded."""
        self._by_itself = True
        if not self._running:
            self.begin(self.step + 1)

    def advance(self) -> None:
        """The step that runs has ended, and the next one begins; for loops that only say when they updated weights."""
        # After the last update a step begins that nobody runs: that is no reason to warn.
        self.begin(self.step + 1, past_end_is_news=self.step + 1 != self.total_steps)

    def begin(self, step: int, *, past_end_is_news: bool = True) -> float:
        """K of ``step``, which runs from now on. The same step again, as for a micro-batch, changes nothing."""
        if self.runs(step):
            return self.k
        self.end()
        if step <= self.step:
            raise InputError(
                f"step {step} began after step {self.step}; expected steps in order. Make a new one for each training, "
                "or load the state of the step before"
            )
        if step > 0 and self.step < 0:
            what = "whether the rule was the same cannot be told" if self.open_loop else "K starts anew"
            self.say_once("anew", f"training goes on at step {step} without the state of {describe(self.rule)}: {what}")
        self._before = (self.step, self.k, self._state)
        self.step, self._running = step, True
        self.k = check_k(self._next_k(step, past_end_is_news))
        if self._numbers.device.type == "cpu":
            self._numbers.numpy()[:] = step_numbers(step, self.k)
        else:
            self._numbers.copy_(torch.tensor(step_numbers(step, self.k)))
        self._rows, self._counted = 0, False
        return self.k

    @property
    def running(self) -> bool:
        """Whether a step has begun and not ended."""
        return self._running

    @property
    def counted(self) -> bool:
        """Whether a loss has said what it saw of the micro-batch that runs; not known ``by_call``."""
        return self._counted

    def runs(self, step: int) -> bool:
        """Whether ``step`` has begun and not ended."""
        return self._running and self.step == step

    def next_batch(self) -> None:
        """The next micro-batch of the same step begins."""
        self._numbers[1] += self._rows
        self._rows, self._counted = 0, False

    def end(self) -> None:
        """The step that runs has ended: what it saw goes to the rule and to the log, added up over all ranks."""
        if not self._running:
            return
        self._running = False
        self._log_k += self.k
        self._log_steps += 1
        self._ended = len(self._waiting)
        self._unread_steps += 1
        reads = self._unread_steps == LAG
        # Several ranks add up every step: the logs may be read on one of them alone.
        if self._added or reads or not self.open_loop or distributed.world_size() > 1:
            self._add_waiting(self._take_ended())
            sums = distributed.total(self._sums)
            self._log_sums += sums
            if not self.open_loop:
                self._seen[self.step] = (self.k, HostCopy(sums))
                self._seen.pop(self.step - LAG - 1, None)
            self._sums.zero_()
            self._added = False
        if reads:
            if self._loss is not None:
                self._check_loss(self._loss.values[0])
            self._loss = HostCopy(self._log_sums[LOSS : LOSS + 1])
            self._unread_steps = 0

    def evaluated(self, auc: float, reliability: list[float]) -> None:
        """The validation AUC before the next step runs, and P(K) of the validation ranks at `VALIDATION_KS`."""
        if not self.open_loop:
            self._validation[self.steps_ended] = (auc, reliability)

    @property
    def steps_ended(self) -> int:
        """How many steps have ended, those before a resume included."""
        return self.step + (not self._running)

    @property
    def validation(self) -> tuple[float, list[float]] | None:
        """What the evaluation before the next step found."""
        return self._validation.get(self.steps_ended)

    def logs(self) -> dict[str, float]:
        """Means over the steps since the last call: ``k``, ``k_used`` and ``win_rate``; empty where no step ended."""
        values = self.log_values()
        return {name: values[name] for name in ("k", "k_used", "win_rate") if values.get(name) is not None}

    def log_values(self) -> dict[str, Any]:
        """All that `negwise.records.StepRecord` has room for; an undefined value is None."""
        self._log_ended()
        sums = dict(zip(COUNTS, self._log_sums.tolist(), strict=True))
        k_sum, steps = self._log_k, self._log_steps
        self._forget_logs()
        if not steps:
            return {}
        self._check_loss(sums["loss"])
        if not sums["queries"]:
            self.say_once(
                "unused",
                f"no loss used K in {steps} steps up to step {self.step}: what trains the model is another "
                "loss than the one that was told K",
            )

        def ratio(over: str, of: str) -> float | None:
            return sums[over] / sums[of] if sums[of] else None

        log_k1, loss = ratio("log_k1", "queries"), ratio("loss", "queries")
        return {
            "k": k_sum / steps,
            "k_used": ratio("pairs", "queries"),
            "loss": loss,
            "win_rate": ratio("wins", "pairs"),
            "log_k1": log_k1,
            "mi_bound": None if log_k1 is None or loss is None else log_k1 - loss,
            "hit_rate": ratio("hits", "rows"),
            "k_asked": self._state.get("asked"),
            "k_reason": self._state.get("reason"),
        }

    def check_losses(self) -> None:
        """Refuse a loss that was not finite in a step since the last log; it waits for a GPU."""
        self._log_ended()
        self._check_loss(float(self._log_sums[LOSS]))

    # What the loss says

    @torch.no_grad()
    def draws(self, rows: int, width: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """How many negatives each row keeps, (rows,) int64, and an order of ``width`` places, (width,), for this batch.

        ``counts[b]`` is that of `negwise.draws.counts` for row b of the whole batch: micro-batches after one another,
        ranks side by side. The order is the same on all ranks. The ranks' batches must be equally large.
        """
        self.check_running()
        what = (distributed.process_rank() * rows, rows, width, self.seed)
        on_host = self._numbers.device.type == "cpu" and rows + width <= HOST_DRAWS
        if on_host and not torch.compiler.is_compiling():
            drawn = to_device(np.concatenate(draw_on_host(self._numbers.numpy(), *what)), device)
            counts, order = drawn[:rows], drawn[rows:]
        else:
            if self._numbers.device != device:
                self._numbers = self._numbers.to(device)
            counts, order = draw_on_device(self._numbers, *what)
        self.count_rows(rows)
        return counts, order

    def count_rows(self, rows: int) -> None:
        """A batch of ``rows`` rows on each rank is on its way; the numbers of later rows follow on its own."""
        everywhere = rows * distributed.world_size()
        if self.by_call:
            self._numbers[1] += everywhere
        else:
            self._rows = everywhere

    @torch.no_grad()
    def add(self, sums: Tensor) -> None:
        """What a batch counted, in the order of `COUNTS`; for a batch that is seen several times, the first counts."""
        if self.by_call or not self._counted:
            self._move_sums(sums.device)
            self._sums += sums
            self._added, self._counted = True, not self.by_call

    def add_later(self, counted: Any, sums_of: SumsOf) -> None:
        """As `add` of ``sums_of([counted])``. What several batches ``counted`` may come to ``sums_of`` together."""
        if self.by_call or not self._counted:
            self._waiting.append((sums_of, counted))
            self._counted = not self.by_call
            if len(self._waiting) - self._ended >= LAG:  # of one step
                running, self._waiting = self._waiting[self._ended :], self._waiting[: self._ended]
                self._add_waiting(running)
                self._added = True

    def _take_ended(self) -> list[tuple[SumsOf, Any]]:
        """What waits of steps that have ended."""
        ended, self._waiting = self._waiting[: self._ended], self._waiting[self._ended :]
        self._ended = 0
        return ended

    def _add_waiting(self, waiting: list[tuple[SumsOf, Any]]) -> None:
        for sums in _sums_of(waiting):
            self._move_sums(sums.device)
            self._sums += sums

    def _log_ended(self) -> None:
        for sums in _sums_of(self._take_ended()):
            self._move_sums(sums.device)
            self._log_sums += sums

    def _move_sums(self, device: torch.device) -> None:
        if self._sums.device != device:
            self._sums, self._log_sums = self._sums.to(device), self._log_sums.to(device)

    @property
    def draws_besides_given(self) -> bool:
        """Whether K is the number of drawn negatives, which are all that a closed-loop rule sees."""
        return not self.open_loop

    def say_once(self, about: str, message: str) -> None:
        """Warn, at most once about ``about``."""
        if about not in self._said:
            self._said.add(about)
            warnings.warn(message, stacklevel=3)

    # What is saved

    def state_dict(self) -> dict[str, Any]:
        """The state after the last step that ended, in JSON's own types; a step that still runs will begin again."""
        step, k, state = self._before if self._running else (self.step, self.k, self._state)
        return {
            "rule": describe(self.rule),
            "identity": self._identity,
            "seed": self.seed,
            "total_steps": self.total_steps,
            "step": step,
            "k": None if math.isnan(k) else k,
            "state": state,
            "seen": [[at, k, copy.values] for at, (k, copy) in self._seen.items()],
            "validation": [[at, auc, curve] for at, (auc, curve) in self._validation.items()],
        }

    def check_same_training(self, state: dict[str, Any]) -> None:
        """Refuse ``state`` of another rule, seed, or number of steps where K depends on it."""
        if not isinstance(state, dict) or not self.state_dict().keys() <= state.keys():
            raise InputError(f"got {reprlib.repr(state)} for a state, expected what state_dict() gave")
        mine, rule = self._identity, describe(self.rule)
        if state["identity"] != mine:
            more = difference(state["identity"], mine)
            raise InputError(_made_with("rule", state["rule"], f"{rule}{more}"))
        if state["seed"] != self.seed:
            raise InputError(_made_with("seed", state["seed"], self.seed))
        if cannot_be_told(mine):
            fields = ", ".join(mine["unknown"])
            self.say_once("same", f"whether the checkpoint's {rule} is this one cannot be told: {fields} may differ")
        if None in (state["total_steps"], self.total_steps) or state["total_steps"] == self.total_steps:
            return
        if depends_on_fraction(mine):
            raise InputError(
                _made_with("total_steps", state["total_steps"], self.total_steps)
                + f". Trainers have it from their steps or epochs; K of {rule} follows the fraction of training"
            )
        if not self.open_loop and not isinstance(self.rule, OnlineK):
            said = f"the checkpoint was made with total_steps {state['total_steps']}, and this run has"
            self.say_once("total", f"{said} {self.total_steps}: {rule} sees the new number from here on")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, which `check_same_training` must let through."""
        self.check_same_training(state)
        self.step, self._running = state["step"], False
        self.k = math.nan if state["k"] is None else state["k"]
        self._state = state["state"]
        self._seen = {
            int(at): (k, HostCopy(torch.tensor(values, dtype=torch.float64))) for at, k, values in state["seen"]
        }
        self._validation = {int(at): (auc, list(curve)) for at, auc, curve in state["validation"]}
        self._sums.zero_()
        self._waiting, self._ended, self._unread_steps, self._added = [], 0, 0, False
        self._loss = None
        self._forget_logs()
        if self._by_itself:
            self.begin(self.step + 1)

    # Inside

    def _check_loss(self, total: float) -> None:
        """Refuse a sum of losses that is not finite; on a GPU nothing else looks at them."""
        if not math.isfinite(total):
            raise InputError(
                f"a loss in one of the last steps up to step {self.step} is not finite: a vector is not finite, or the "
                "scores overflow. Type a lower learning rate or a higher temperature; "
                "torch.autograd.set_detect_anomaly(True) finds the operation"
            )

    def _forget_logs(self) -> None:
        self._log_sums.zero_()
        self._log_k, self._log_steps = 0.0, 0

    def _next_k(self, step: int, past_end_is_news: bool) -> float:
        if self.total_steps is None and not isinstance(self.rule, OnlineK):
            raise InputError(
                f"{describe(self.rule)} needs the number of optimizer steps of the whole training: pass total_steps"
            )
        total = step + 1 if self.total_steps is None else self.total_steps
        if step >= total:
            if past_end_is_news:
                self.say_once("end", f"step {step} is past total_steps={total}: K holds from here on")
            if not math.isnan(self.k):
                return self.k
            step = total - 1
        k, self._state = self.rule.update(self._observation(step, total), self._state)
        return k

    def _observation(self, step: int, total: int) -> Observation:
        known: dict[str, Any] = {}
        self._validation.pop(step - LAG - 1, None)
        if (validation := self._validation.get(step - LAG)) is not None:
            known = {"val_auc": validation[0], "val_reliability": tuple(validation[1])}
        if (seen := self._seen.get(step - LAG)) is not None:
            counts = dict(zip(COUNTS, seen[1].values, strict=True))
            self._check_loss(counts["loss"])
            known |= {"wins": counts["drawn_wins"], "pairs": int(counts["drawn_pairs"]), "hits": counts["hits"]}
            known |= {"rows": int(counts["rows"]), "k": seen[0]}
            if counts["pairs"] == counts["drawn_pairs"]:  # else it counts given negatives too
                known["log_k1"] = counts["log_k1"]
        return Observation(step, total, **known)

    def check_running(self) -> None:
        """Refuse a draw outside a step."""
        if not self._running:
            raise InputError(
                "a loss that draws K negatives was called before its first step began. Type loss.control.begin(step) "
                "at the start of each optimizer step, or pass optimizer= to the loss"
            )


def _sums_of(waiting: list[tuple[SumsOf, Any]]) -> Iterator[Tensor]:
    """The sums of batches, by what adds them up."""
    for sums_of in dict.fromkeys(sums_of for sums_of, _ in waiting):
        yield sums_of([counted for other, counted in waiting if other is sums_of])


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _made_with(name: str, saved: object, mine: object) -> str:
    return (
        f"the checkpoint was made with {name} {saved}, and this run has {mine}. Use the same {name} to resume, or "
        "start a new run"
    )

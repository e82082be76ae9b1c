"""K of each step from a rule. A closed-loop rule sees counts that are a fixed number of steps old.

The lag makes K of the next step known before this step runs, so that its batch can be prepared meanwhile; and it makes
K the same on a CPU, on a GPU and on any number of ranks. The rule itself knows nothing of the lag.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from negwise.host_copy import HostCopy
from negwise.protocols import Observation, OpenLoopRule, Rule
from negwise.training.forward_pass import COUNTS


@dataclass(frozen=True)
class Seen:
    """What a step counted, with the K that it was made with; on its way to the rule."""

    k: float
    counts: HostCopy


class Validation(NamedTuple):
    """What an evaluation says to a rule."""

    auc: float
    reliability: list[float]


class KController:
    """``k(step)`` for steps in order, at most one step ahead of the last `observe`.

    ``state`` is what `state_dict` gave before ``step`` began.
    """

    def __init__(self, rule: Rule, total_steps: int, lag: int, step: int = 0, state: dict[str, Any] | None = None):
        self.rule, self.total_steps, self.lag = rule, total_steps, lag
        self.open_loop = isinstance(rule, OpenLoopRule)
        state = state or {"rule": rule.init(), "seen": [], "validation": {}}
        self._after: dict[int, Any] = {step - 1: state["rule"]}  # the rule's state once K of a step is set
        self._k: dict[int, float] = {}
        self._seen: dict[int, Seen] = {
            int(at): Seen(k, HostCopy(torch.tensor(counts, dtype=torch.float64))) for at, k, counts in state["seen"]
        }
        self._validation: dict[int, Validation] = {int(at): Validation(*one) for at, one in state["validation"].items()}

    def k(self, step: int) -> float:
        """K of ``step``."""
        if step not in self._k:
            self._k[step], self._after[step] = self.rule.update(self._observation(step), self._after[step - 1])
            for past in [at for at in self._k if at < step - 1]:
                del self._k[past]
            for past in [at for at in self._after if at < step - 2]:
                del self._after[past]
        return self._k[step]

    def observe(self, step: int, sums: Tensor) -> None:
        """What ``step`` counted on all ranks, in the order of `COUNTS`."""
        if not self.open_loop:
            self._seen[step] = Seen(self._k[step], HostCopy(sums))
            self._seen.pop(step - self.lag - 2, None)

    def evaluated(self, step: int, auc: float, reliability: Sequence[float]) -> None:
        """The validation AUC before ``step`` ran, and P(K) of the validation ranks at `VALIDATION_KS`."""
        if not self.open_loop:
            self._validation[step] = Validation(auc, list(reliability))

    def reason(self, step: int) -> dict[str, Any]:
        """``k_asked``, the K that the rule asked for at ``step``, before its bounds, and ``k_reason``, what set K."""
        state = self._after.get(step, {})
        return {"k_asked": state.get("asked"), "k_reason": state.get("reason")}

    def state_dict(self, step: int) -> dict[str, Any]:
        """The state before ``step`` began, in plain values."""
        past = range(step - self.lag, step)
        return {
            "rule": self._after[step - 1],
            "seen": [[at, self._seen[at].k, self._seen[at].counts.values] for at in past if at in self._seen],
            "validation": {str(at): list(one) for at, one in self._validation.items() if at >= step - self.lag},
        }

    def _observation(self, step: int) -> Observation:
        past = step - self.lag
        seen, validation = self._seen.get(past), self._validation.get(past)
        known: dict[str, Any] = {}
        if validation is not None:
            known = {"val_auc": validation.auc, "val_reliability": tuple(validation.reliability)}
        if seen is None:
            return Observation(step, self.total_steps, **known)
        counts = dict(zip(COUNTS, seen.counts.values, strict=True))
        return Observation(
            step,
            self.total_steps,
            wins=counts["wins"] - counts["given_wins"],
            pairs=int(counts["pairs"] - counts["given_pairs"]),
            hits=counts["hits"],
            rows=int(counts["rows"]),
            log_k1=counts["log_k1"] if counts["given_pairs"] == 0 else None,  # it counts given negatives too
            k=seen.k,
            **known,
        )

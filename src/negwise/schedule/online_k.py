r"""Online K: K from the model's own reliability while it trains, without a pilot.

The reliability P(K) is the chance that the model puts a positive above all of its K negatives (eq. 4). Its estimate is
the hit rate h of the training batches, the share of rows whose positive was above all of its negatives. `OnlineK` holds
it at r: an untrained model has h = 1 / (K + 1), so that K starts at 1 / r - 1; as the model learns, K grows.

With averages of h and ln K over the same steps,

.. math:: \ln K = \overline{\ln K} + \mathrm{clip}\left((\Phi^{-1}(h) - \Phi^{-1}(r)) \sqrt{2 \ln(1 + K)}, -1, 1\right),

since :math:`\Phi^{-1}(P(K))` falls by about :math:`1 / \sqrt{2 \ln K}` for each unit of ln K. The step is from the mean
K at which h was measured, so there is nothing to oscillate at any lag.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from scipy.special import ndtri

from negwise.errors import InputError
from negwise.protocols import VALIDATION_KS, Observation, State
from negwise.theory.metric_k import is_deep, k_for_metric
from negwise.theory.reliability import MAX_K
from negwise.theory.reliability import reliability as binormal_reliability
from negwise.theory.separation import separation

TOP_N_RELIABILITY, AUC_RELIABILITY = 0.1, 0.2
"""Chosen on the validation data of four tasks (docs/log.md)."""
DECAY, DECAY_OF_SMALL_BATCHES, SMALL_BATCH = 0.98, 0.99, 64
BEYOND_VALIDATION = 4.0
"""K may be this many times the K at which the validation ranks have reliability r: training ranks are better ones."""
BUCKET, HYSTERESIS = math.log(2) / 2, 0.2


@final
@dataclass(frozen=True)
class OnlineK:
    """K such that the model puts a positive above all of its K negatives with probability ``reliability``.

    None is 0.1 for a top-n metric, 0.2 for AUC and deep cut-offs. Bounds, of which the smallest wins: ``max_k``;
    `k_for_metric` of ``metric`` over ``candidates``; after an evaluation, four times the K at which the validation
    ranks have that reliability, since a model that memorises its training data lets K run away. K is at least
    ``min_k``. ``buckets`` moves K in steps of sqrt(2), for loops that compile a step for each size.

    The state is plain JSON. Its ``asked`` is the K without bounds, its ``reason`` says what set K.
    """

    reliability: float | None = None
    metric: str = "auc"
    candidates: int | None = None
    min_k: float | None = None
    max_k: float | None = None
    buckets: bool = False

    def __post_init__(self) -> None:
        r = self.reliability
        if r is not None and not (isinstance(r, int | float) and 0 < r < 1):
            raise InputError(f"OnlineK: reliability={r!r}, expected a share above 0 and below 1, as 0.3.")
        low, high = 1.0 if self.min_k is None else self.min_k, math.inf if self.max_k is None else self.max_k
        if not 0 < low <= high:
            raise InputError(f"OnlineK: min_k={low:g} and max_k={high:g}, expected 0 < min_k <= max_k.")
        is_deep(self.metric)  # refuses a metric that is not known

    @property
    def target(self) -> float:
        """r."""
        if self.reliability is not None:
            return self.reliability
        return AUC_RELIABILITY if is_deep(self.metric) else TOP_N_RELIABILITY

    @property
    def known_bound(self) -> float:
        """The largest K that this rule may come to, as far as it is known before training."""
        return self._bounded(math.inf, None)[0]

    def init(self) -> State:
        sums = dict.fromkeys(("rows", "hits", "log_k", "wins", "pairs"), 0.0)
        return {**sums, "validation_k": None, "bucket": None, "asked": None, "reason": None}

    def update(self, observation: Observation, state: State) -> tuple[float, State]:
        state = _watch(observation, state)
        if observation.val_reliability is not None:
            state["validation_k"] = k_at(observation.val_reliability, self.target)
        asked = 1 / self.target - 1 if state["rows"] == 0 else self._ask(state)
        k, bound = self._bounded(asked, state["validation_k"])
        if self.buckets and bound is None:
            k = self._in_buckets(k, state)
        return k, {**state, "asked": asked, "reason": bound or self._reason(state)}

    def _ask(self, state: State) -> float:
        """The K that has reliability r, as far as the last steps tell."""
        rows, mean_log_k = state["rows"], state["log_k"] / state["rows"]
        mean_k = math.exp(mean_log_k)
        if state["hits"] is None:
            auc = min(max(state["wins"] / state["pairs"], 1e-6), 1 - 1e-6)
            hit_rate = float(binormal_reliability(separation(auc), min(mean_k, MAX_K)))
        else:
            hit_rate = state["hits"] / rows
        hit_rate = min(max(hit_rate, 0.5 / rows), 1 - 0.5 / rows)
        missing = float(ndtri(hit_rate) - ndtri(self.target))
        change = min(max(missing * math.sqrt(2 * math.log1p(mean_k)), -1.0), 1.0)
        return math.exp(mean_log_k + change)

    def _reason(self, state: State) -> str:
        if state["rows"] == 0:
            return "nothing seen yet"
        return f"P(K) held at {self.target:g}" + (", by the win rate" if state["hits"] is None else "")

    def _bounded(self, k: float, validation_k: float | None) -> tuple[float, str | None]:
        """``k`` within its bounds, and the bound that it met."""
        low = 1.0 if self.min_k is None else self.min_k
        most = MAX_K if self.max_k is None else self.max_k
        bounds = [(most, f"max_k, {most:g}")]
        if self.candidates is not None:
            of_metric = k_for_metric(self.metric, self.candidates, available=self.max_k)
            bounds.append((of_metric, f"K for {self.metric}, {of_metric:.4g}"))
        if validation_k is not None:
            bounds.append((BEYOND_VALIDATION * validation_k, "the validation ranks"))
        most, name = min(bounds, key=lambda bound: bound[0])
        if k > most:
            return most, f"bounded by {name}"
        return (k, None) if k >= low else (min(low, most), f"min_k, {low:g}")

    def _in_buckets(self, k: float, state: dict[str, Any]) -> float:
        at = math.log(k) / BUCKET
        if state["bucket"] is None or abs(at - state["bucket"]) > 0.5 + HYSTERESIS:
            state["bucket"] = round(at)
        return self._bounded(math.exp(state["bucket"] * BUCKET), state["validation_k"])[0]


def k_at(reliabilities: Sequence[float], target: float) -> float:
    """The K at which a falling curve, given at `VALIDATION_KS`, has reliability ``target``; linear in ln K."""
    before_k, before = 0.5, 1.0
    for k, here in zip(VALIDATION_KS, reliabilities, strict=True):
        if here <= target:
            share = (before - target) / (before - here)
            return float(math.exp(math.log(before_k) + share * (math.log(k) - math.log(before_k))))
        before_k, before = float(k), here
    return before_k


def _watch(observation: Observation, state: State) -> dict[str, Any]:
    """The sums of ``state`` with what was observed; older steps fade.

    Without hits, the win rate stands in for them: the state then says so by ``hits`` None.
    """
    if observation.pairs == 0 or observation.k is None:
        return dict(state)
    counted = observation.rows > 0
    rows = float(observation.rows) if counted else observation.pairs / max(observation.k, 1.0)
    k = observation.pairs / rows  # what rows had, which may be less than what was asked for
    fade = DECAY if rows >= SMALL_BATCH else DECAY_OF_SMALL_BATCHES
    return {
        **state,
        "rows": fade * state["rows"] + rows,
        "hits": fade * state["hits"] + observation.hits if counted and state["hits"] is not None else None,
        "log_k": fade * state["log_k"] + rows * math.log(k),
        "wins": fade * state["wins"] + observation.wins,
        "pairs": fade * state["pairs"] + observation.pairs,
    }

r"""Online K: K from the model's own reliability while it trains, without a pilot.

The reliability P(K) is the chance that the model puts a positive above all of its K negatives (eq. 4). Its estimate is
the hit rate h of the training batches, the share of rows whose positive was above all of its negatives. `OnlineK` holds
it at r: an untrained model has h = 1 / (K + 1), so that K starts at 1 / r - 1; as the model learns, K grows.

With averages of h and ln K over the same rows of the last steps,

.. math:: \ln K = \overline{\ln K} + \mathrm{clip}\left((\Phi^{-1}(h) - \Phi^{-1}(r)) \sqrt{2 \ln(1 + K)}, -1, 1\right),

since :math:`\Phi^{-1}(P(K))` falls by about :math:`1 / \sqrt{2 \ln K}` for each unit of ln K. The step is from the mean
ln K at which h was measured, so there is nothing to oscillate at any lag. Each row counts with the K that it had: rows
that never have more than a few negatives hold h up, and K within a factor of e of the geometric mean of all rows.
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
"""Training ranks are better than those of validation. Where they have reliability r at more than this many times the K
of validation, the model memorises: 2 was seen on healthy data, 60 where a model memorised."""
NOISE = 2.0
"""Standard errors of the hit rate."""
BUCKET, HYSTERESIS = math.log(2) / 2, 0.2


@final
@dataclass(frozen=True)
class OnlineK:
    """K that follows the model: it puts a positive above all of its K negatives with probability ``reliability``.

    ``reliability`` None is 0.1 for a top-n metric, and 0.2 for AUC and deep cut-offs. K is at least ``min_k``. The
    smallest of these bounds it from above:

    - ``max_k``;
    - `k_for_metric` of ``metric`` over ``candidates``;
    - four times the K at which the validation ranks have that reliability, until the next evaluation. This holds only
      after an evaluation which finds that the model memorises its training data; K would run away then.

    ``buckets`` moves K in steps of sqrt(2), for loops that compile a step for each size.

    The state is plain JSON. ``asked`` in it is the K without bounds, and ``reason`` says what set K. ``held_k`` is
    the bound by validation, or None if the last evaluation set none.
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
        return {**sums, "held_k": None, "bucket": None, "asked": None, "reason": None}

    def update(self, observation: Observation, state: State) -> tuple[float, State]:
        state = _watch(observation, state)
        if observation.val_reliability is not None:
            state["held_k"] = self._held_by(observation.val_reliability, state)
        asked = self._ask(state)
        k, bound = self._bounded(asked, state["held_k"])
        if self.buckets and bound is None:
            k = self._in_buckets(k, state)
        return k, {**state, "asked": asked, "reason": bound or self._reason(state)}

    def _ask(self, state: State) -> float:
        """The K that has reliability r, as far as the last steps tell."""
        if state["rows"] == 0:
            return 1 / self.target - 1
        return math.exp(state["log_k"] / state["rows"] + min(max(self._missing(state), -1.0), 1.0))

    def _missing(self, state: State, errors: float = 0.0) -> float:
        """What mean ln K lacks to have reliability r, if the hit rate were so many standard ``errors`` lower."""
        rows, mean_k = state["rows"], math.exp(state["log_k"] / state["rows"])
        hit_rate = min(max(_hit_rate(state, mean_k), 0.5 / rows), 1 - 0.5 / rows)
        low = max(hit_rate - errors * math.sqrt(hit_rate * (1 - hit_rate) / rows), 1e-9)
        return float(ndtri(low) - ndtri(self.target)) * math.sqrt(2 * math.log1p(mean_k))

    def _held_by(self, val_reliability: Sequence[float], state: State) -> float | None:
        """The bound by an evaluation, where K of training is beyond it and beyond noise.

        Elsewhere there is none: training and validation agree, and only training says what comes until the next one.
        """
        if state["rows"] == 0:
            return None
        most = BEYOND_VALIDATION * k_at(val_reliability, self.target)
        of_training = state["log_k"] / state["rows"] + self._missing(state, NOISE)
        return most if of_training > math.log(most) else None

    def _reason(self, state: State) -> str:
        if state["rows"] == 0:
            return "nothing seen yet"
        return f"P(K) held at {self.target:g}" + (", by the win rate" if state["hits"] is None else "")

    def _bounded(self, k: float, held_k: float | None) -> tuple[float, str | None]:
        """``k`` within its bounds, and the bound that it met."""
        low = 1.0 if self.min_k is None else self.min_k
        most = MAX_K if self.max_k is None else self.max_k
        bounds = [(most, f"max_k, {most:g}")]
        if self.candidates is not None:
            of_metric = k_for_metric(self.metric, self.candidates, available=self.max_k)
            bounds.append((of_metric, f"K for {self.metric}, {of_metric:.4g}"))
        if held_k is not None:
            bounds.append((held_k, "validation, far behind training"))
        most, name = min(bounds, key=lambda bound: bound[0])
        if k > most:
            return most, f"bounded by {name}"
        return (k, None) if k >= low else (min(low, most), f"min_k, {low:g}")

    def _in_buckets(self, k: float, state: dict[str, Any]) -> float:
        at = math.log(k) / BUCKET
        if state["bucket"] is None or abs(at - state["bucket"]) > 0.5 + HYSTERESIS:
            state["bucket"] = round(at)
        return self._bounded(math.exp(state["bucket"] * BUCKET), state["held_k"])[0]


def k_at(reliabilities: Sequence[float], target: float) -> float:
    r"""The K at which a falling curve, given at `VALIDATION_KS`, has reliability ``target``.

    Between two K :math:`\Phi^{-1}(P)` is taken to be straight in :math:`\sqrt{2 \ln(1 + K)}`. Below K = 1 a share K of
    the rows has one negative, so that P is 1 - K (1 - P(1)).
    """
    before_k, before = 0.0, 1.0
    for k, here in zip(VALIDATION_KS, reliabilities, strict=True):
        if here <= target and k == 1:
            return (1 - target) / (1 - here)
        if here <= target:
            high, low = ndtri(before), ndtri(max(here, 1e-9))
            start, end = math.sqrt(math.log1p(before_k)), math.sqrt(math.log1p(k))
            share = float((high - ndtri(target)) / (high - low))
            return math.expm1((start + share * (end - start)) ** 2)
        before_k, before = float(k), here
    return before_k


def _hit_rate(state: State, k: float) -> float:
    """h of the last steps; without counted hits that of a Gaussian with their win rate, at ``k``."""
    if state["hits"] is not None:
        return float(state["hits"] / state["rows"])
    auc = min(max(state["wins"] / state["pairs"], 1e-6), 1 - 1e-6)
    return float(binormal_reliability(separation(auc), min(k, MAX_K)))


def _watch(observation: Observation, state: State) -> dict[str, Any]:
    """The sums of ``state`` with what was observed; older steps fade.

    Without hits, the win rate stands in for them: the state then says so by ``hits`` None.
    """
    if observation.pairs == 0 or observation.k is None:
        return dict(state)
    counted = observation.rows > 0
    rows = float(observation.rows) if counted else observation.pairs / max(observation.k, 1.0)
    mean_k = observation.pairs / rows  # what rows had, which may be less than what was asked for
    by_row = observation.log_k1 if counted else None
    log_k = math.log(mean_k if by_row is None else math.expm1(by_row / rows))
    fade = DECAY if rows >= SMALL_BATCH else DECAY_OF_SMALL_BATCHES
    return {
        **state,
        "rows": fade * state["rows"] + rows,
        "hits": fade * state["hits"] + observation.hits if counted and state["hits"] is not None else None,
        "log_k": fade * state["log_k"] + rows * log_k,
        "wins": fade * state["wins"] + observation.wins,
        "pairs": fade * state["pairs"] + observation.pairs,
    }

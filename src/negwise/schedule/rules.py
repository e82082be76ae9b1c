"""Open-loop schedules of K: frozen rules that are pure functions of the fraction of training.

A rule can be called in two ways, which give the same K::

    rule = AnsK(peak=20)
    k = rule(0.05)                                                       # from the fraction of training
    k, state = rule.update(Observation(step=5, total_steps=101), state)  # as every training loop does

The fraction at step ``s`` of ``n`` is ``s / (n - 1)``: 0 at the first step and 1 at the last. If there is only
one step, it is 0. K is real-valued: `negwise.draws.counts` draws whole numbers with that mean.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from negwise.errors import InputError
from negwise.protocols import Observation, State


class OpenLoop(ABC):
    """Base of the open-loop rules. They use only the step of an observation, so their state is empty."""

    @abstractmethod
    def __call__(self, fraction: float) -> float:
        """K at ``fraction`` of training, in [0, 1]."""

    @final
    def init(self) -> State:
        return {}

    @final
    def update(self, observation: Observation, state: State) -> tuple[float, State]:
        return self(training_fraction(observation.step, observation.total_steps)), state


@final
@dataclass(frozen=True)
class ConstantK(OpenLoop):
    """The constant ``k``."""

    k: float

    def __post_init__(self) -> None:
        _check_k(self.k, "ConstantK(k)")

    def __call__(self, fraction: float) -> float:
        _check_fraction(fraction)
        return float(self.k)


@final
@dataclass(frozen=True)
class AnsK(OpenLoop):
    """The paper's adaptive negative sampling: K rises from 1 to ``peak`` at ``turning_point``, then falls to 1.

    ``k(f) = 1 + (peak - 1) f / t`` until the turning point t, then ``1 + (peak - 1) (1 - f) / (1 - t)``.
    The paper takes the estimated K* as the peak, and 10% of the steps as the turning point, found by trial.
    """

    peak: float
    turning_point: float = 0.1

    def __post_init__(self) -> None:
        _check_peak(self.peak, "AnsK(peak)")
        _check_fraction(self.turning_point, "AnsK(turning_point)")

    def __call__(self, fraction: float) -> float:
        _check_fraction(fraction)
        rising = fraction <= self.turning_point and self.turning_point > 0
        share = fraction / self.turning_point if rising else (1 - fraction) / (1 - self.turning_point)
        return 1 + (self.peak - 1) * share


@final
@dataclass(frozen=True)
class WarmK(OpenLoop):
    """K rises from 1 to ``peak`` at ``warmup``, then stays there: ``k(f) = 1 + (peak - 1) min(1, f / warmup)``."""

    peak: float
    warmup: float = 0.1

    def __post_init__(self) -> None:
        _check_peak(self.peak, "WarmK(peak)")
        _check_fraction(self.warmup, "WarmK(warmup)")

    def __call__(self, fraction: float) -> float:
        _check_fraction(fraction)
        share = fraction / self.warmup if fraction < self.warmup else 1.0
        return 1 + (self.peak - 1) * share


@final
@dataclass(frozen=True)
class PiecewiseK(OpenLoop):
    """Linear interpolation between ``points`` of (fraction, k); constant before the first and after the last.

    Two points at the same fraction are a jump to the second one:
    ``PiecewiseK([(0, 1), (0.3, 1), (0.3, 20)])`` is 1 for the first 30% of the steps, then 20.
    """

    points: Sequence[tuple[float, float]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "points", _check_points(self.points))

    def __call__(self, fraction: float) -> float:
        _check_fraction(fraction)
        after = bisect_right(self.points, fraction, key=operator.itemgetter(0))
        if after == 0 or after == len(self.points):
            return self.points[max(after - 1, 0)][1]
        (left, from_k), (right, to_k) = self.points[after - 1 : after + 1]
        share = (fraction - left) / (right - left)
        return (1 - share) * from_k + share * to_k


@final
@dataclass(frozen=True, repr=False)
class FunctionK(OpenLoop):
    """Any function of the fraction: ``FunctionK(lambda f: 64**f)``. Each K that it returns is checked."""

    function: Callable[[float], float]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError(
                f"FunctionK needs a function of the fraction of training, got {self.function!r}. "
                "Type FunctionK(lambda fraction: 1 + 19 * fraction), or ConstantK(4) for a fixed K"
            )

    def __call__(self, fraction: float) -> float:
        _check_fraction(fraction)
        return _check_k(self.function(float(fraction)), f"{self!r} at fraction {fraction:g}")

    def __repr__(self) -> str:
        return f"FunctionK({getattr(self.function, '__qualname__', repr(self.function))})"


def training_fraction(step: int, total_steps: int) -> float:
    """``step / (total_steps - 1)``, or 0 if there is only one step."""
    if total_steps < 1 or not 0 <= step < total_steps:
        raise InputError(
            f"step {step} of total_steps {total_steps} is out of range; steps count from 0 to total_steps - 1. "
            "Pass the number of optimizer steps in the whole training as total_steps"
        )
    return step / (total_steps - 1) if total_steps > 1 else 0.0


def k_by_step(rule: Callable[[float], float], total_steps: int) -> Iterator[float]:
    """K of step 0, 1, ..., ``total_steps`` - 1 by an open-loop rule."""
    return (rule(training_fraction(step, total_steps)) for step in range(total_steps))


def _check_k(k: float, name: str) -> float:
    value = _as_float(k)
    if value is None or not 0 <= value < math.inf:
        raise InputError(f"{name} must be a finite number of negatives, 0 or more; got {k!r}")
    return value


def _check_peak(peak: float, name: str) -> None:
    if _check_k(peak, name) < 1:
        raise InputError(f"{name} must be at least 1, the K at the start; got {peak!r}. Use PiecewiseK for less than 1")


def _check_fraction(fraction: float, name: str = "the fraction of training") -> float:
    value = _as_float(fraction)
    if value is None or not 0 <= value <= 1:
        raise InputError(f"{name} must lie in [0, 1]; got {fraction!r}")
    return value


def _as_float(value: Any) -> float | None:
    """``value`` as a float, or None if it is not a number (text and booleans are not)."""
    if isinstance(value, str | bytes | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _check_points(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    try:
        pairs = [(fraction, k) for fraction, k in points]
    except (TypeError, ValueError):
        raise InputError(
            f"PiecewiseK needs (fraction, k) pairs such as [(0, 1), (0.1, 20), (1, 1)]; got {points!r}"
        ) from None
    if not pairs:
        raise InputError("PiecewiseK needs at least one (fraction, k) pair, such as [(0, 1), (0.1, 20)]; got none")
    checked = tuple(
        (
            _check_fraction(fraction, f"the fraction of PiecewiseK point {number}"),
            _check_k(k, f"the K of PiecewiseK point {number}"),
        )
        for number, (fraction, k) in enumerate(pairs)
    )
    fractions = [fraction for fraction, _ in checked]
    if fractions != sorted(fractions):
        raise InputError(f"PiecewiseK points must be in order of fraction; got {fractions}. Sort them")
    if any(fractions.count(fraction) > 2 for fraction in fractions):
        raise InputError(f"PiecewiseK takes at most two points at one fraction (a jump); got {fractions}")
    return checked

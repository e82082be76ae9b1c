"""The K that maximises effectiveness, and the range of K that are as good."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from negwise.theory.effectiveness import mean_effectiveness
from negwise.theory.separation import Floats

ReliabilityCurve = Callable[[Floats], Floats]  # K (n,) -> P (n,)

PER_DECADE = 64
FLAT = 0.01  # "as good" means within one percent of the maximum
_REFINED_POINTS = 33  # points of each finer grid


@dataclass(frozen=True)
class Optimum:
    """The maximum of v over K in [1, max_k], with the grid of v that was searched."""

    k: float
    k_int: int
    value: float
    flat: tuple[int, int | None]
    at_end: bool
    ks: Floats
    vs: Floats

    def as_good(self, k: float) -> bool:
        """Whether ``k`` lies in ``flat``."""
        return in_flat(self.flat, k)


def in_flat(flat: tuple[int, int | None], k: float) -> bool:
    """Whether ``k`` lies in the range ``flat``, whose end may be open."""
    return flat[0] <= k and (flat[1] is None or k <= flat[1])


def k_grid(max_k: float, per_decade: int = PER_DECADE) -> Floats:
    """K from 1 to ``max_k``, evenly spaced in log K, both ends included."""
    decades = math.log10(max_k)
    return np.geomspace(1.0, max_k, max(2, math.ceil(decades * per_decade) + 1)) if max_k > 1 else np.ones(1)


def optimum(label: ReliabilityCurve, model: ReliabilityCurve, lam: float, max_k: float) -> Optimum:
    """Maximise ``v(K) = mean_effectiveness(P(A), mean P(B))`` over K in [1, max_k].

    v can have a second maximum at large K. So a grid over the whole range finds the global one, and finer and finer
    grids around it refine it.
    """

    def v(k: Floats) -> Floats:
        return mean_effectiveness(label(k), model(k), lam)

    ks = k_grid(max_k)
    vs = v(ks)
    k, value = _refine(v, ks, vs)
    whole = np.array([i for i in (math.floor(k), math.ceil(k)) if i <= max_k], dtype=np.float64)
    k_int = int(whole[np.argmax(v(whole))])
    return Optimum(k, k_int, value, _flat_range(v, ks, vs, k, k_int, value), bool(k >= ks[-1]), ks, vs)


def peaks(vs: Floats, ks: Floats) -> Floats:
    """The K of each row's maximum, by a parabola at the top: vs (..., n) on an even grid of log K -> (...)."""
    top = np.argmax(vs, axis=-1)
    inner = np.clip(top, 1, ks.size - 2)
    left, middle, right = (np.take_along_axis(vs, (inner + i)[..., None], -1)[..., 0] for i in (-1, 0, 1))
    bend = left - 2.0 * middle + right
    offset = np.where((bend < 0) & (top == inner), 0.5 * (left - right) / np.where(bend < 0, bend, 1.0), 0.0)
    return ks[top] * np.exp(offset * np.log(ks[1] / ks[0]))  # a maximum at an end of the grid stays there


def _refine(v: ReliabilityCurve, ks: Floats, vs: Floats) -> tuple[float, float]:
    """K and value of the maximum: finer grids around the top, down to a relative width of 1e-7."""
    while True:
        top = int(np.argmax(vs))
        low, high = ks[max(top - 1, 0)], ks[min(top + 1, ks.size - 1)]
        # v is quadratic at its top: within the square root of machine precision its values are noise.
        if high - low <= 1e-7 * low:
            return float(ks[top]), float(vs[top])
        ks = np.geomspace(low, high, _REFINED_POINTS)
        vs = v(ks)


def _flat_range(
    v: ReliabilityCurve, ks: Floats, vs: Floats, k: float, k_int: int, value: float
) -> tuple[int, int | None]:
    """Smallest and largest whole K of the connected range around k with v within `FLAT`; None: no upper end."""
    threshold = value - FLAT * abs(value)
    outside = np.flatnonzero(vs < threshold)
    left, right = outside[ks[outside] < k], outside[ks[outside] > k]
    low = _crossing(v, ks[left[-1]], min(ks[left[-1] + 1], k), threshold) if left.size else 1.0
    first = min(math.ceil(low), k_int)
    if not right.size:
        return first, None
    high = _crossing(v, ks[right[0]], max(ks[right[0] - 1], k), threshold)
    return first, max(math.floor(high), k_int)


def _crossing(v: ReliabilityCurve, outside: float, inside: float, threshold: float) -> float:
    """The K between ``outside`` and ``inside`` at which v reaches ``threshold``, to a relative width of 1e-9."""
    while abs(inside - outside) > 1e-9 * inside:
        ks = np.geomspace(outside, inside, _REFINED_POINTS)
        reached = v(ks) >= threshold
        reached[-1] = True  # true by definition; rounding must not change it
        first = int(np.argmax(reached))
        outside, inside = float(ks[first - 1]), float(ks[first])
    return inside

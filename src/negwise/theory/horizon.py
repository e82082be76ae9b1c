r"""The horizon T of a training curve: the peak of validation, and when training counts as converged.

The mean of v over training depends on the end of training. T is the first evaluation whose smoothed validation
separation reaches 95% of its peak. On the paper's simulated curve :math:`\mu(1 - e^{-t})` that is the paper's
t = 3. For a model that starts well above chance, as a pretrained one does, it is 95% of the way from its start.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from negwise.theory.separation import Floats

HORIZON = 0.95
RAMP_END = 3.0
WELL_ABOVE_CHANCE = 2 / 3
"""A model that starts at more than this share of its peak was pretrained. One from scratch: 0.54 (`--example`)."""
_NORMAL_MEDIAN = 0.6745  # the median of the absolute value of a standard normal
_RAMP_NODES = 257  # odd, for Simpson's rule; the mean is then exact to ten digits


def smooth(values: Floats) -> Floats:
    """Smooth by a local line fit: each evaluation with its neighbours, 5% of the curve (at least one) on each side.

    A line is used instead of a mean, so that the ends of a rising curve are not biased. It is fitted over the index
    of the evaluation, not its step, so that steps may be uneven. Fewer than five evaluations are returned unchanged.
    """
    n = values.size
    if n < 5:
        return values
    half = max(1, n // 20)
    at = np.arange(n)
    low, high = np.maximum(at - half, 0), np.minimum(at + half + 1, n)
    size = high - low
    level = values - values.mean()  # centred values keep their digits in the running sums
    sums, moments = (np.concatenate([[0.0], np.cumsum(x)]) for x in (level, level * at))
    total, moment = sums[high] - sums[low], moments[high] - moments[low]
    centre = 0.5 * (low + high - 1)
    slope = (moment - centre * total) / (size * (size**2 - 1) / 12.0)
    return values.mean() + total / size + slope * (at - centre)


def evaluation_noise(steps: Floats, values: Floats) -> float:
    """The noise that evaluations do not share: the median distance of each from the line between its neighbours.

    It is scaled to a standard deviation. It is 0 for fewer than five evaluations, which cannot show it.
    """
    if steps.size < 5:
        return 0.0
    share = (steps[1:-1] - steps[:-2]) / (steps[2:] - steps[:-2])
    off = values[1:-1] - (1.0 - share) * values[:-2] - share * values[2:]
    scale = np.sqrt(1.0 + share**2 + (1.0 - share) ** 2)
    return float(np.median(np.abs(off) / scale)) / _NORMAL_MEDIAN


def peak_index(smoothed: Floats) -> int:
    """The first evaluation at which the smoothed separation is highest."""
    return int(np.argmax(smoothed))


def horizon_index(smoothed: Floats, share: float = HORIZON, start: float = 0.0) -> int:
    """The first evaluation that reaches ``share`` of the peak (the peak itself if it is not above chance).

    ``start`` is the separation before training. If it is well above chance, the share is of the way from there.
    """
    peak = peak_index(smoothed)
    if smoothed[peak] <= 0:
        return peak
    begin = start if start > WELL_ABOVE_CHANCE * smoothed[peak] else 0.0
    return int(np.argmax(smoothed >= begin + share * (smoothed[peak] - begin)))


def trapezoid_weights(steps: Floats) -> Floats:
    """Weights (T,) of the trapezoid mean over [steps[0], steps[-1]]; they sum to one."""
    if steps.size == 1:
        return np.ones(1)
    gaps = np.diff(steps)
    weights = np.zeros(steps.size)
    weights[:-1] += gaps
    weights[1:] += gaps
    return weights / (2.0 * (steps[-1] - steps[0]))


def prepend_untrained(steps: Floats, separations: Floats) -> tuple[Floats, Floats]:
    """The curve, with (step 0, separation 0) prepended if it starts later: an untrained model is at chance."""
    if steps[0] <= 0:
        return steps, separations
    return np.concatenate([[0.0], steps]), np.concatenate([[0.0], separations])


def chunk_starts(n: int, max_chunks: int) -> NDArray[np.intp]:
    """The start of each of at most ``max_chunks`` even chunks of n points, to average a long curve down."""
    return np.linspace(0, n, min(n, max_chunks), endpoint=False).astype(np.intp)


def ramp(end: float, share: float = HORIZON) -> tuple[Floats, Floats]:
    r"""The simulated curve that ends at separation ``end``: separations (T,) at even times, and Simpson's weights.

    .. math:: \mu'_t = \mu'_{\mathrm{end}}\,\frac{1-e^{-t}}{1-e^{-3}}, \qquad t \in [0, 3]

    At the paper's t = 3 the curve is at 95% of its asymptote. Another ``share`` moves that end.
    """
    last = RAMP_END * math.log1p(-share) / math.log1p(-HORIZON)
    t = np.linspace(0.0, last, _RAMP_NODES)
    weights = np.full(_RAMP_NODES, 2.0)
    weights[1::2] = 4.0
    weights[[0, -1]] = 1.0
    return end * np.expm1(-t) / math.expm1(-RAMP_END), weights / (3.0 * (_RAMP_NODES - 1))

r"""Forecast the asymptote of a rising curve: a saturating fit with its standard error.

.. math:: \mu(t) = a - b\,e^{-t/\tau}

For a given time constant the other two parameters follow from linear least squares. So the fit is a scan over
:math:`\tau`, which cannot fail to converge. Each :math:`\tau` is weighted by its likelihood, and the uncertainty of
the asymptote includes the spread over :math:`\tau`. A curve that is still a straight line fits every long
:math:`\tau` equally well, so its range is wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from negwise.theory.horizon import chunk_starts
from negwise.theory.separation import Floats

CONVERGED = 0.95  # a curve at this share of its asymptote counts as converged, like the horizon
_MIN_GROWTH = 0.03
_MIN_SIGMAS = 2.0
_N_TAUS = 120
_MAX_POINTS = 512  # a longer curve is averaged down to this many points
_MAX_TAU = 10.0  # the longest time constant considered, in lengths of the curve
_MIN_NOISE = 1e-3  # smallest noise of a separation; without it a noiseless curve would look certain


@dataclass(frozen=True)
class Forecast:
    """The asymptote ``a`` of a rising curve, its standard error, and the step at which 95% of it is reached."""

    asymptote: float
    se: float
    last_point: tuple[float, float]  # step and separation of the last evaluation
    tau: float
    settles_at: float

    def at(self, steps: Floats) -> Floats:
        """The forecast at ``steps`` (n,): from the last evaluation to the asymptote, with the fitted ``tau``."""
        step, value = self.last_point
        return self.asymptote - (self.asymptote - value) * np.exp(-(steps - step) / self.tau)


def forecast(steps: Floats, separations: Floats) -> Forecast | None:
    """Fit the curve from half of its maximum on; None if it has too few evaluations there, or does not rise."""
    start = int(np.argmax(separations >= 0.5 * separations.max()))
    t, y = steps[start:], separations[start:]
    if t.size < 5:
        return None
    cuts = chunk_starts(t.size, _MAX_POINTS)
    sizes = np.diff(np.append(cuts, t.size))
    t, y = np.add.reduceat(t, cuts) / sizes, np.add.reduceat(y, cuts) / sizes
    span = float(t[-1] - t[0])
    taus = np.geomspace(span / t.size, _MAX_TAU * span, _N_TAUS)
    decay = np.exp(-(t - t[0]) / taus[:, None])  # (taus, n)
    centred = decay - decay.mean(axis=1, keepdims=True)
    spread = (centred**2).sum(axis=1)
    fall = -(centred @ y) / spread
    asymptote = y.mean() + fall * decay.mean(axis=1)
    residual = ((y - (asymptote[:, None] - fall[:, None] * decay)) ** 2).sum(axis=1)

    free = t.size - 3
    residual += free * _MIN_NOISE**2
    # The likelihood of tau with the noise level integrated out, uniform in log tau. Falling fits get no weight.
    weights = (residual / residual.min()) ** (-0.5 * (t.size - 2)) * (fall > 0)
    if not weights.sum() > 0:
        return None
    weights /= weights.sum()
    mean = float(weights @ asymptote)
    within = residual / free * (1.0 / t.size + decay.mean(axis=1) ** 2 / spread)
    se = math.sqrt(float(weights @ (within + (asymptote - mean) ** 2)))
    tau = float(np.exp(weights @ np.log(taus)))
    remaining = max((mean - float(y[-1])) / ((1.0 - CONVERGED) * mean), 1.0)
    return Forecast(mean, se, (float(t[-1]), float(y[-1])), tau, float(t[-1] + tau * math.log(remaining)))


def still_rising(steps: Floats, separations: Floats) -> bool:
    """Whether a line through the last third (at least four evaluations) rises by 3% of its end, and beyond noise."""
    third = min(int(np.searchsorted(steps, steps[0] + (steps[-1] - steps[0]) * 2.0 / 3.0)), steps.size - 4)
    t, y = steps[max(third, 0) :], separations[max(third, 0) :]
    if t.size < 3:
        return False
    away = t - t.mean()
    slope = float(away @ y) / float(away @ away)
    residual = y - y.mean() - slope * away
    slope_se = math.sqrt(float(residual @ residual) / (t.size - 2) / float(away @ away))
    end = float(y.mean() + slope * away[-1])
    return slope * float(t[-1] - t[0]) > _MIN_GROWTH * abs(end) and slope > _MIN_SIGMAS * slope_se

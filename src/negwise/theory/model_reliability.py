r"""The reliability of the model: mean P(B) over training, as a function of K.

Effectiveness is linear in P(B), so it needs only the mean P(B) of a curve of T separations:

.. math:: \sum_t w_t P(\mu_t, K) = \int m(x)\,\Phi(x)^K dx, \qquad m(x) = \sum_t w_t\,\varphi(x - \mu_t).

The T steps are combined into one density on the N nodes of the quadrature. Then each K costs one power per node,
whatever T is. Shapes: T steps, N nodes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from negwise.theory.empirical_reliability import ScoreRanks, rank_reliability
from negwise.theory.horizon import HORIZON, chunk_starts, prepend_untrained, ramp, trapezoid_weights
from negwise.theory.optimum import ReliabilityCurve
from negwise.theory.reliability import STEP, grid_for, log_normal, reliability
from negwise.theory.separation import Floats

SATURATION = 20.0  # beyond this separation every P rounds to 0 or 1
_MAX_CHUNKS = 256
_BLOCK = 2048  # steps combined at once: 2 MB


@dataclass(frozen=True)
class ModelReliability:
    """Mean P(B) over a curve of separations (T,) with weights (T,), by Gaussians or, if given, by ``empirical``.

    ``sensitivity`` (T,) is the shift of each point per unit error of the validation curve: 1 for a measured
    evaluation, 0 for the untrained model, whose AUC is one half in any sample.
    """

    separations: Floats
    weights: Floats
    sensitivity: Floats
    empirical: ReliabilityCurve | None = None

    def __call__(self, k: Floats) -> Floats:
        """Mean P(B) at each K (n,)."""
        return expected_power(*self.density, k) if self.empirical is None else self.empirical(k)

    @functools.cached_property
    def density(self) -> tuple[Floats, Floats]:
        r"""The curve as one density on the nodes (N,), and :math:`\log\Phi` there (N,)."""
        nodes, log_cdf = grid_for(self.separations)
        return mixture_density(self.separations, self.weights, nodes), log_cdf

    def shifted(self, shifts: Floats, k: Floats) -> Floats:
        """Mean P(B) under each error of the validation curve: shifts (s,), K (n,) -> (s, n).

        The relative change is computed on the curve averaged down to `_MAX_CHUNKS` chunks, which is precise enough
        for an interval. The mean itself is exact.
        """
        cuts = chunk_starts(self.weights.size, _MAX_CHUNKS)
        weights = np.add.reduceat(self.weights, cuts)
        mu = np.add.reduceat(self.separations * self.weights, cuts) / weights
        sensitivity = np.add.reduceat(self.sensitivity * self.weights, cuts) / weights
        # Clipping changes no P and keeps the factors of `mixture_density` finite. Shape (1 + s, chunks).
        moved = np.clip(mu + np.multiply.outer(np.append(0.0, shifts), sensitivity), -SATURATION, SATURATION)
        nodes, log_cdf = grid_for(moved)
        densities = np.stack([mixture_density(row, weights, nodes) for row in moved])
        change = expected_power(densities, log_cdf, k)
        return self(k) * change[1:] / change[0]


def reliability_from_curve(steps: Floats, separations: Floats, last: int) -> ModelReliability:
    """Mean P(B) of a measured curve: the trapezoid mean over [0, T], where T is the step of evaluation ``last``."""
    times, mu = prepend_untrained(steps[: last + 1], separations[: last + 1])
    measured = np.ones(times.size)
    measured[: times.size - last - 1] = 0.0
    return ModelReliability(mu, trapezoid_weights(times), measured)


def reliability_from_ramp(end: float, share: float = HORIZON) -> ModelReliability:
    """Mean P(B) of a simulated curve that ends at separation ``end``. An error of ``end`` scales the whole curve."""
    mu, weights = ramp(end, share)
    progress, _ = ramp(1.0, share)
    return ModelReliability(mu, weights, progress)


def empirical_from_curve(steps: Floats, ranks: Sequence[ScoreRanks], last: int) -> ReliabilityCurve:
    """Mean P(B) over [0, T] from ranks, with one set of scores per evaluation."""
    times, _ = prepend_untrained(steps[: last + 1], steps[: last + 1])
    weights = trapezoid_weights(times)
    first = times.size - last - 1  # 1 if the untrained model, P = 1/(K+1), was prepended

    def mean(k: Floats) -> Floats:
        total = weights[0] / (k + 1.0) if first else np.zeros(k.shape)
        for weight, each in zip(weights[first:], ranks[: last + 1], strict=True):
            total = total + weight * rank_reliability(each, k)
        return total

    return mean


def empirical_from_ramp(end: float, ranks: ScoreRanks, share: float = HORIZON) -> ReliabilityCurve:
    r"""Mean P(B) over a simulated curve with ranks at its end.

    The ratio of P from ranks to P from the Gaussian is measured at the end. At the start it is 1, as both are 1/(K+1).
    In between it is the measured ratio to the power of the progress, from 0 at the start to 1 at the end.
    """
    mu, weights = ramp(end, share)
    progress, _ = ramp(1.0, share)

    def mean(k: Floats) -> Floats:
        ratio = rank_reliability(ranks, k) / reliability(end, k)
        return weights @ (reliability(mu[:, None], k) * ratio ** progress[:, None])

    return mean


def mixture_density(separations: Floats, weights: Floats, nodes: Floats) -> Floats:
    r"""The density :math:`h\sum_t w_t\,\varphi(x_i - \mu_t)` (N,) on the nodes, quadrature weight included.

    On equidistant nodes :math:`x_i = (i_0 + aS + b)h` the exponential factors,

    .. math:: \varphi(x_i - \mu) = \varphi(x_i)\, e^{(i_0 + aS)h\mu - \mu^2/2}\, e^{bh\mu},

    so T x 2 sqrt(N) exponentials and one matrix product replace T x N exponentials. No term is negative, so nothing
    cancels. It works for separations up to 25 in size; beyond that the factors overflow.
    """
    side = math.isqrt(nodes.size - 1) + 1
    total = np.zeros((side, side))
    coarse = nodes[0] + STEP * side * np.arange(side)
    fine = STEP * np.arange(side)
    for start in range(0, separations.size, _BLOCK):
        mu = separations[start : start + _BLOCK, None]
        left = np.exp(mu * coarse - 0.5 * mu * mu) * weights[start : start + _BLOCK, None]
        total += left.T @ np.exp(mu * fine)
    return total.ravel()[: nodes.size] * np.exp(log_normal(nodes))


def expected_power(density: Floats, log_cdf: Floats, k: Floats) -> Floats:
    r""":math:`\sum_i m_i\,\Phi(x_i)^K` for each K: density (..., N), K (n,) -> (..., n)."""
    return density @ np.exp(np.multiply.outer(log_cdf, k))


def expected_power_every_k(density: Floats, log_cdf: Floats, max_k: int) -> Floats:
    r"""`expected_power` at K = 0, 1, ..., ``max_k``: (max_k + 1,), as one matrix product.

    With K = aS + b, :math:`\Phi^K = (\Phi^S)^a\,\Phi^b`: 2 sqrt(max_k) powers per node instead of max_k.
    """
    side = math.isqrt(max_k) + 1
    steps = np.arange(side)
    left = np.exp(np.multiply.outer(side * steps, log_cdf)) * density
    right = np.exp(np.multiply.outer(log_cdf, steps))
    return (left @ right).ravel()[: max_k + 1]

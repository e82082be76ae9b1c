r"""Reliability: the probability that a positive scores above all of its K negatives (eq. 3 and 4).

.. math:: P(\mu, K) = E_{x \sim N(\mu, 1)}[\Phi(x)^K]

The integrand is analytic and decays like a Gaussian at both ends, so the trapezoid rule converges spectrally. Its
error is about :math:`e^{-2\pi a/h}`, where :math:`a` is the width of the strip in which the integrand stays bounded.
The narrowest strip is that of :math:`\Phi(x)^K` at large K, a Gumbel step of width :math:`1/\sqrt{2\ln K}`. At
K = 1e7 that gives :math:`a \approx 0.3`, and h = 1/20 leaves an error of 1e-16. Every term is positive, so the
*relative* error is as small, even if the probability is 1e-11.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from negwise.errors import InputError
from negwise.theory.separation import Floats, as_floats, check_broadcast, first_bad

STEP = 1.0 / 20.0
TAIL_SIGMAS = 9.0  # a Gaussian beyond nine standard deviations is below one part in 1e18
MAX_K = 1e7  # the step above is fine enough up to this K
MAX_SEPARATION = 60.0
_LOW, _HIGH = -11.0, 17.0  # covers separations from -2 to 8, so that all of those use one grid
_TINY = float(np.finfo(np.float64).tiny)
_MAX_PAIRS = 4096  # pairs of (separation, K) held in memory at once: 18 MB


def reliability(separation: ArrayLike, k: ArrayLike) -> Floats:
    r"""P(mu, K): eq. 3 for the label separation, eq. 4 for the model's. Arguments broadcast.

    K is real, from 0 to 1e7. Exact cases: :math:`P(0, K) = 1/(K+1)`, :math:`P(\mu, 1) = \mathrm{AUC}`,
    :math:`P(\mu, 0) = 1`.

    >>> float(reliability(1.0, 4).round(6))
    0.493699
    """
    return _integrate(separation, k, lambda power, log_cdf, _: power * log_cdf)


def reliability_slope_k(separation: ArrayLike, k: ArrayLike) -> Floats:
    r""":math:`\partial P/\partial K = E[\Phi(x)^K \log\Phi(x)]`, never positive."""
    # log(-log Phi) keeps the factor inside the exponent, so that all terms have one sign. If Phi rounds to 1, the
    # smallest positive number replaces -log Phi: the term is practically 0 in both cases.
    return -_integrate(separation, k, lambda power, log_cdf, _: power * log_cdf + np.log(np.maximum(-log_cdf, _TINY)))


def reliability_slope_separation(separation: ArrayLike, k: ArrayLike) -> Floats:
    r""":math:`\partial P/\partial\mu = K\,E[\Phi(x)^{K-1}\varphi(x)]`, never negative.

    Integrated by parts from :math:`E[(x-\mu)\Phi(x)^K]`, whose terms would cancel.
    """
    slope = _integrate(
        separation, k, lambda power, log_cdf, x: (power - 1.0) * log_cdf + log_normal(x) - math.log(STEP)
    )
    return slope * np.asarray(k, dtype=np.float64)


def k_as_floats(k: ArrayLike) -> Floats:
    """``k`` as float64, or an `InputError` if it is outside [0, 1e7]."""
    value = as_floats(k, "k")
    bad = (value < 0) | (value > MAX_K)
    if np.any(bad):
        raise InputError(f"k: got {first_bad(value, bad)}, expected a number of negatives from 0 to 1e7.")
    return value


@functools.cache
def grid(low: float = _LOW, high: float = _HIGH) -> tuple[Floats, Floats]:
    r"""Nodes x (N,) from ``low`` to ``high`` in multiples of the step, and :math:`\log\Phi(x)` (N,)."""
    nodes: Floats = np.arange(math.floor(low / STEP), math.ceil(high / STEP) + 1, dtype=np.float64) * STEP
    log_cdf = log_ndtr(nodes)
    nodes.setflags(write=False)
    log_cdf.setflags(write=False)
    return nodes, log_cdf


def grid_for(separations: Floats) -> tuple[Floats, Floats]:
    """The common grid, extended if a separation lies outside [-2, 8]."""
    if separations.size == 0:
        return grid()
    low, high = float(separations.min()), float(separations.max())
    # Above x = 10 every power of Phi is 1, so a low separation needs no extension on the right.
    return grid(min(_LOW, math.floor(low - TAIL_SIGMAS)), max(_HIGH, math.ceil(high + TAIL_SIGMAS)))


def log_normal(x: Floats) -> Floats:
    r""":math:`\log(h\,\varphi(x))`: the log of the standard normal density times the quadrature weight."""
    return -0.5 * x * x + math.log(STEP / math.sqrt(2.0 * math.pi))


def _integrate(separation: ArrayLike, k: ArrayLike, log_term: Callable[[Floats, Floats, Floats], Floats]) -> Floats:
    """Sum over the nodes of N(x; mu, 1) exp(log_term(K, log Phi(x), x)); mu and K broadcast."""
    mu, power = as_floats(separation, "separation"), k_as_floats(k)
    far = np.abs(mu) > MAX_SEPARATION
    if np.any(far):
        raise InputError(
            f"separation: got {first_bad(mu, far)}, expected at most {MAX_SEPARATION:g} in size. "
            "Pass a separation, such as negwise.separation(auc)."
        )
    check_broadcast(separation=mu, k=power)
    nodes, log_cdf = grid_for(mu)

    def integral(mu: Floats, power: Floats) -> Floats:
        density = np.exp(log_normal(nodes - mu[..., None]))
        return np.sum(density * np.exp(log_term(power[..., None], log_cdf, nodes)), axis=-1)

    if mu.size + power.size <= 2 * _MAX_PAIRS:
        return np.asarray(integral(mu, power), dtype=np.float64)
    pairs = np.broadcast_arrays(mu, power)
    flat_mu, flat_power = (np.ravel(side) for side in pairs)
    out = np.empty(flat_mu.size)
    for start in range(0, out.size, _MAX_PAIRS):
        part = slice(start, start + _MAX_PAIRS)
        out[part] = integral(flat_mu[part], flat_power[part])
    return out.reshape(pairs[0].shape)

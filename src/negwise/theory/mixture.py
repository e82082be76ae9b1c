r"""Reliability averaged over a whole training curve, at every K at once.

Effectiveness is linear in P(B), so a curve of T separations enters only through the mean of P(B):

.. math:: \sum_t w_t P(\mu_t, K) = \int m(x)\,\Phi(x)^K dx, \qquad m(x) = \sum_t w_t\,\varphi(x - \mu_t).

The steps are folded into one density on the N nodes of the quadrature, after which each K costs one power
per node, whatever T is. Shapes: T steps, N nodes.
"""

from __future__ import annotations

import math

import numpy as np

from negwise.theory.reliability import STEP, log_normal
from negwise.theory.separation import Floats

_BLOCK = 2048  # steps folded in at once: 2 MB


def mixture_density(separations: Floats, weights: Floats, nodes: Floats) -> Floats:
    r"""The density :math:`h\sum_t w_t\,\varphi(x_i - \mu_t)` (N,) on the nodes, quadrature weight included.

    On equidistant nodes :math:`x_i = (i_0 + aS + b)h` the exponential factors,

    .. math:: \varphi(x_i - \mu) = \varphi(x_i)\, e^{(i_0 + aS)h\mu - \mu^2/2}\, e^{bh\mu},

    so T x 2 sqrt(N) exponentials and one matrix product replace T x N exponentials. No term is negative,
    so nothing cancels. It holds for separations up to 25 in size; beyond that the factors overflow.
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


def expected_power(density: Floats, log_below: Floats, k: Floats) -> Floats:
    r""":math:`\sum_i m_i\,\Phi(x_i)^K` for each K: density (..., N), K (n,) -> (..., n)."""
    return density @ np.exp(np.multiply.outer(log_below, k))


def expected_power_every_k(density: Floats, log_below: Floats, max_k: int) -> Floats:
    r"""`expected_power` at K = 0, 1, ..., ``max_k``: (max_k + 1,), as one matrix product.

    With K = aS + b, :math:`\Phi^K = (\Phi^S)^a\,\Phi^b`: 2 sqrt(max_k) powers per node instead of max_k.
    """
    side = math.isqrt(max_k) + 1
    steps = np.arange(side)
    left = np.exp(np.multiply.outer(side * steps, log_below)) * density
    right = np.exp(np.multiply.outer(log_below, steps))
    return (left @ right).ravel()[: max_k + 1]

"""Independent references for the theory: 30-digit quadrature, Monte Carlo, and the paper's equations as written."""

from __future__ import annotations

import math

import mpmath
import numpy as np


def reliability_30_digits(mu: float, k: float) -> mpmath.mpf:
    """P(mu, K) by Gauss-Legendre panels of 30 digits, cut finely enough for any K up to 1e7."""
    with mpmath.workdps(30):
        mean, power = mpmath.mpf(mu), mpmath.mpf(k)

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(x, mean, 1) * mpmath.ncdf(x) ** power

        low, high = min(mu, 0.0) - 13.0, max(mu, 6.0) + 13.0
        cuts = [low + i * (high - low) / 64 for i in range(65)]
        return mpmath.quad(integrand, cuts, maxdegree=5)


def reliability_by_drawing(mu: float, k: int, n: int, seed: int) -> tuple[float, float]:
    """The share of draws in which a positive beats K negatives, and its standard error."""
    rng = np.random.default_rng(seed)
    wins = 0
    for _ in range(n // 10_000):
        positives = rng.normal(mu, 1.0, 10_000)
        wins += int((rng.standard_normal((10_000, k)).max(axis=1) < positives).sum())
    share = wins / n
    return share, math.sqrt(share * (1 - share) / n)


def paper_effectiveness(label: float, model: float, k: float, lam: float) -> float:
    """Eq. 5 and 6 as the paper writes them, for N training samples."""
    n = 1000.0
    p_a, p_b = float(reliability_30_digits(label, k)), float(reliability_30_digits(model, k))
    good = p_a * (1 - p_b) * n
    bad = p_b * (1 - p_a) * n
    easy = n - good - bad
    return (lam * (good - bad) + (1 - lam) * easy) / n

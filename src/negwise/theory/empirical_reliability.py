r"""Reliability of a model from the ranks of its scores, without a Gaussian (eq. 4).

A positive that scores above r of its m negatives beats K of them, drawn without replacement, with probability
:math:`\binom rK/\binom mK`. That is an unbiased estimate of :math:`F(s^+)^K`, for every integer K up to m. With t
ties, broken at random, r is uniform on r..r+t. The sum has a closed form,

.. math:: \frac1{t+1}\sum_{j=0}^{t}\binom{r+j}K = \frac{1}{t+1}\left[\binom{r+t+1}{K+1} - \binom r{K+1}\right].

Shapes: n positives, m negatives each.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from negwise.errors import InputError
from negwise.theory.separation import Floats, as_floats

_FEW_TIES = 64  # up to so many ties the sum itself is used: its closed form is a difference that loses digits


class ScoreRanks(NamedTuple):
    """Ranks of positives among their negatives: negatives below (n,), ties (n,), and m, the number of negatives."""

    below: Floats
    ties: Floats
    negatives: int

    @property
    def shares(self) -> Floats:
        """Share of its own negatives below each positive, a tie counts one half (n,)."""
        return (self.below + 0.5 * self.ties) / self.negatives


def score_ranks(positives: ArrayLike, negatives: ArrayLike) -> ScoreRanks:
    """Ranks of ``positives`` (n,) among ``negatives``: (n, m), a row for each positive, or (m,), shared by all."""
    pos, neg = as_floats(positives, "positive scores"), as_floats(negatives, "negative scores")
    if pos.ndim != 1 or pos.size == 0:
        raise InputError(
            f"positive scores: got shape {pos.shape}, expected (n,): one score per positive, at least one."
        )
    if neg.ndim not in (1, 2) or neg.size == 0 or (neg.ndim == 2 and len(neg) != len(pos)):
        raise InputError(
            f"negative scores: got shape {neg.shape} for {pos.size} positives, expected ({pos.size}, m), a row of "
            "negatives for each positive, or (m,), shared by all of them."
        )
    if neg.ndim == 1:
        ordered = np.sort(neg)
        below = np.searchsorted(ordered, pos, side="left")
        ties = np.searchsorted(ordered, pos, side="right") - below
    else:
        below = (neg < pos[:, None]).sum(axis=1)
        ties = (neg == pos[:, None]).sum(axis=1)
    return ScoreRanks(below.astype(np.float64), ties.astype(np.float64), neg.shape[-1])


def rank_auc(ranks: ScoreRanks) -> tuple[float, float]:
    """AUC (the mean share of negatives below a positive) and its standard error over positives."""
    shares = ranks.shares
    if shares.size < 2:
        raise InputError("positive scores: got 1, expected at least 2, as one score has no standard error.")
    return float(shares.mean()), float(shares.std(ddof=1) / np.sqrt(shares.size))


def rank_reliability(ranks: ScoreRanks, k: Floats) -> Floats:
    """Unbiased P(B) at each K (n_k,), for K up to the number of negatives.

    A real K means floor(K) or floor(K)+1 negatives at random (eq. 8). So P is linear between integers, which is
    unbiased for the negatives that are drawn.
    """
    if np.any(k > ranks.negatives):
        raise InputError(
            f"k: got {float(k.max())!r}, expected at most {ranks.negatives}: ranks among {ranks.negatives} "
            "negatives say nothing about more of them. Score more negatives per positive."
        )
    whole = np.floor(k)
    needed = np.unique(np.concatenate([whole, np.minimum(whole + 1, ranks.negatives)]))
    at_integers = _mean_win(ranks, needed)
    return np.interp(k, needed, at_integers)


def _mean_win(ranks: ScoreRanks, k: Floats) -> Floats:
    # Positives with the same rank share a term, so the cost grows with the number of distinct ranks, not with n.
    kinds, times = np.unique(np.stack([ranks.below, ranks.ties]), axis=1, return_counts=True)
    below, ties = kinds[:, :, None]
    total = _log_choose(float(ranks.negatives), k)
    wins = np.exp(_log_choose(below, k) - total)
    few = min(int(ties.max()), _FEW_TIES)
    for i in range(1, few + 1):
        tied = np.flatnonzero((ties[:, 0] >= i) & (ties[:, 0] <= _FEW_TIES))
        wins[tied] += np.exp(_log_choose(below[tied] + i, k) - total)
    many = np.flatnonzero(ties[:, 0] > _FEW_TIES)
    above = _log_choose(below[many] + ties[many] + 1, k + 1) - total
    wins[many] = np.exp(above) - np.exp(_log_choose(below[many], k + 1) - total)
    return np.minimum(times @ (wins / (ties + 1)) / times.sum(), 1.0)


def _log_choose(n: Floats | float, k: Floats) -> Floats:
    """Log of the binomial coefficient; minus infinity if k > n."""
    short = k > n
    rest = np.where(short, 0.0, n - k)
    value = gammaln(np.asarray(n) + 1.0) - gammaln(np.where(short, 0.0, k) + 1.0) - gammaln(rest + 1.0)
    return np.where(short, -np.inf, value)

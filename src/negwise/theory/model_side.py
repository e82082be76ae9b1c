"""The model's side of effectiveness: mean P(B) over training, as a function of K."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from negwise.theory.horizon import HORIZON, from_start, piece_starts, ramp, trapezoid_weights
from negwise.theory.mixture import expected_power, mixture_density
from negwise.theory.optimum import ReliabilityCurve
from negwise.theory.ranks import Ranks, rank_reliability
from negwise.theory.reliability import grid_for, reliability
from negwise.theory.separation import Floats

_PIECES = 256
FARTHEST = 20.0


@dataclass(frozen=True)
class ModelSide:
    """A curve of separations (T,) with weights (T,); ``by_ranks`` replaces its Gaussians where scores are known.

    ``moves`` (T,) says how far each point goes with a unit error of the validation AUC: 1 for a measured
    evaluation, 0 for the untrained model, whose AUC is one half whatever the sample.
    """

    separations: Floats
    weights: Floats
    moves: Floats
    by_ranks: ReliabilityCurve | None = None

    def __call__(self, k: Floats) -> Floats:
        """Mean P(B) at each K (n,)."""
        return expected_power(*self.density, k) if self.by_ranks is None else self.by_ranks(k)

    @functools.cached_property
    def density(self) -> tuple[Floats, Floats]:
        r"""The curve as one density on the nodes (N,), and :math:`\log\Phi` there (N,)."""
        nodes, log_below = grid_for(self.separations)
        return mixture_density(self.separations, self.weights, nodes), log_below

    def shifted(self, shifts: Floats, k: Floats) -> Floats:
        """Mean P(B) under each error of the validation curve: shifts (s,), K (n,) -> (s, n).

        The relative change is computed on the curve averaged down to `_PIECES` pieces, which is all that error
        bars need; the mean itself is exact.
        """
        cuts = piece_starts(self.weights.size, _PIECES)
        weights = np.add.reduceat(self.weights, cuts)
        mu = np.add.reduceat(self.separations * self.weights, cuts) / weights
        moves = np.add.reduceat(self.moves * self.weights, cuts) / weights
        # Beyond 20 every P is 0 or 1 to the last digit, so the bound changes nothing and keeps the factors finite.
        moved = np.clip(mu + np.multiply.outer(np.append(0.0, shifts), moves), -FARTHEST, FARTHEST)  # (1 + s, pieces)
        nodes, log_below = grid_for(moved)
        densities = np.stack([mixture_density(row, weights, nodes) for row in moved])
        change = expected_power(densities, log_below, k)
        return self(k) * change[1:] / change[0]


def model_from_curve(steps: Floats, separations: Floats, last: int) -> ModelSide:
    """The trapezoid mean over [0, T], T being evaluation ``last``."""
    times, mu = from_start(steps[: last + 1], separations[: last + 1])
    measured = np.ones(times.size)
    measured[: times.size - last - 1] = 0.0
    return ModelSide(mu, trapezoid_weights(times), measured)


def model_from_ramp(end: float, share: float = HORIZON) -> ModelSide:
    """The end of training known, the way there simulated; an error at the end stretches the whole ramp."""
    mu, weights = ramp(end, share)
    way, _ = ramp(1.0, share)
    return ModelSide(mu, weights, way)


def ranks_over_curve(steps: Floats, standings: Sequence[Ranks], last: int) -> ReliabilityCurve:
    """Mean P(B) over [0, T] straight from ranks, one set of scores per evaluation."""
    times, _ = from_start(steps[: last + 1], steps[: last + 1])
    weights = trapezoid_weights(times)
    first = times.size - last - 1  # 1 where the untrained model, P = 1/(K+1), was put in front

    def mean(k: Floats) -> Floats:
        total = weights[0] / (k + 1.0) if first else np.zeros(k.shape)
        for weight, standing in zip(weights[first:], standings[: last + 1], strict=True):
            total = total + weight * rank_reliability(standing, k)
        return total

    return mean


def ranks_along_ramp(end: float, standing: Ranks, share: float = HORIZON) -> ReliabilityCurve:
    r"""Mean P(B) along a ramp whose end is known by ranks.

    At the end the ratio of P by ranks to P by the Gaussian is measured, at the start it is 1 (both are 1/(K+1));
    on the way it is taken as that ratio to the power of the share of the way gone.
    """
    mu, weights = ramp(end, share)
    way, _ = ramp(1.0, share)

    def mean(k: Floats) -> Floats:
        ratio = rank_reliability(standing, k) / reliability(end, k)
        return weights @ (reliability(mu[:, None], k) * ratio ** way[:, None])

    return mean

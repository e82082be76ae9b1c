"""The share of the gain that each K brings: hit@n from the ranks of every query, and a curve through it.

``share(K) = (q(K) - q(1)) / (q(best) - q(1))``, for the mean q over seeds. The curve is ``(K - 1) / (K - 1 + h)`` with
``h = c (M / n)^p`` for n of M candidates. c and p are fitted on the catalogue tasks; the error is that of each data set
under the fit of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from evidence.record import ranks_of

Floats = NDArray[np.float64]
DATA_SETS = {"items": ("items-ten", "items-long"), "matching": ("matching-ten",), "docs": ("docs-ten",)}
"""Records of each data set with the most seeds. Impressions have no catalogue, so news is not among them."""
CUTS = (1, 5, 10, 20, 50)
"""Cut-offs of the top of a ranking; deeper ones follow AUC more than the cut-off."""


@dataclass(frozen=True)
class Shares:
    """Shares of the gain at ``k`` (N,) for a cut-off with ``ratio`` = M / n (N,)."""

    k: Floats
    ratio: Floats
    share: Floats

    @classmethod
    def of(cls, parts: Sequence[Shares]) -> Shares:
        """All of ``parts``."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("k", "ratio", "share")))


def measured_shares(folder: Path, records: Sequence[str], cuts: Sequence[int] = CUTS) -> Shares:
    """Shares of the gain in hit@n of every fixed K of these records; the best K of a cut-off has share 1."""
    found = []
    for record in records:
        ranks = ranks_of(folder, record)
        ks = sorted({float(rule) for rule, _ in ranks if rule.replace(".", "").isdigit()})
        rules = {float(rule): rule for rule, _ in ranks if rule.replace(".", "").isdigit()}
        seeds = sorted({seed for _, seed in ranks})
        candidates = float(np.mean(next(iter(ranks.values())).sizes))
        for n in cuts:
            hits = np.array(
                [
                    np.mean([np.mean(ranks[rules[k], seed].above < n) for seed in seeds if (rules[k], seed) in ranks])
                    for k in ks
                ]
            )
            gain = hits.max() - hits[0]
            if ks[0] == 1.0 and gain > 0:
                share = (hits - hits[0]) / gain
                found.append(Shares(np.array(ks[1:]), np.full(len(ks) - 1, candidates / n), share[1:]))
    return Shares.of(found)


def curve(k: Floats, ratio: Floats, scale: float, power: float) -> Floats:
    """``(K - 1) / (K - 1 + c (M / n)^p)``."""
    return (k - 1) / (k - 1 + scale * ratio**power)


def fit(shares: Shares) -> tuple[float, float]:
    """c and p by least squares."""

    def residuals(parameters: Floats) -> Floats:
        return curve(shares.k, shares.ratio, float(np.exp(parameters[0])), float(parameters[1])) - shares.share

    found = least_squares(residuals, [0.0, 0.3])
    return float(np.exp(found.x[0])), float(found.x[1])


def fit_records(folder: Path) -> dict[str, float]:
    """c, p, and the root mean square error of each data set under the fit of the others."""
    shares = {name: measured_shares(folder, records) for name, records in DATA_SETS.items()}
    scale, power = fit(Shares.of(list(shares.values())))
    found = {"scale": scale, "power": power}
    for name, own in shares.items():
        others = fit(Shares.of([other for key, other in shares.items() if key != name]))
        found[f"error on {name}"] = float(np.sqrt(np.mean((curve(own.k, own.ratio, *others) - own.share) ** 2)))
    return found

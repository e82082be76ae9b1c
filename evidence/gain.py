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

from evidence.analysis import load_analysis
from evidence.markdown import table
from evidence.record import ranks_of
from negwise import optimal_k, share_of_gain

Floats = NDArray[np.float64]
DATA_SETS = {"items": ("items-ten", "items-long"), "matching": ("matching-ten",), "docs": ("docs-ten",)}
"""Records of each data set with the most seeds. Impressions have no catalogue, so news is not among them."""
AUC_RECORDS = ("news-ten", "matching-ten", "items-ten", "docs-ten", "items-long")
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


def envelope_errors(folder: Path) -> dict[str, Floats]:
    """By record: measured less predicted share of the gain in test AUC, at each fixed K above 1.

    The prediction is v's envelope, from the record's own pilot. Nothing is fitted.
    """
    found = {}
    for name in AUC_RECORDS:
        one = load_analysis(folder, name)
        estimate = optimal_k(**one.pilot, max_k=one.max_k)
        arms = {int(arm["rule"]): arm for arm in one.record["arms"] if arm["rule"].isdigit()}
        quality = {k: float(np.mean([run["test"]["auc"] for run in arm["seeds"]])) for k, arm in arms.items()}
        gain = max(quality.values()) - quality[1]
        found[name] = np.array(
            [(quality[k] - quality[1]) / gain - share_of_gain(k, estimate=estimate).share for k in sorted(quality)[1:]]
        )
    return found


def root_mean_square(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def fit_records(folder: Path) -> dict[str, float]:
    """c and p, and errors of the share as root mean squares.

    In the top n they are those of each data set under the fit of the others; in AUC those of each record and of all.
    """
    shares = {name: measured_shares(folder, records) for name, records in DATA_SETS.items()}
    scale, power = fit(Shares.of(list(shares.values())))
    found = {"scale": scale, "power": power}
    for name, own in shares.items():
        others = fit(Shares.of([other for key, other in shares.items() if key != name]))
        found[f"top n, error on {name}"] = root_mean_square(curve(own.k, own.ratio, *others) - own.share)
    errors = envelope_errors(folder)
    found |= {f"AUC, error on {name}": root_mean_square(one) for name, one in errors.items()}
    return found | {"AUC, error on all": root_mean_square(np.concatenate(list(errors.values())))}


def errors(folder: Path) -> str:
    """The errors of `fit_records` as a table, in shares of the gain."""
    found = fit_records(folder)
    rows = [[name, f"{value:.2f}"] for name, value in found.items() if "error" in name]
    return table(["forecast of the share of the gain", "root mean square error"], rows)

"""From the record of a task to its endpoints: gain, regret, captured gain, what predicts K, and the pilot's fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.crossed import Contrast
from evidence.quality import Floats, Measured, measure, ratio
from evidence.record import Record, ranks_of, read
from negwise import auc, optimal_k, separation
from negwise.jobs import bounded_auc
from negwise.metrics import Ranks

LAMS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, eq=False)
class Analysis:
    """A task as measured. Everything follows from ``record`` and the standings beside it."""

    folder: Path
    record: Record

    @property
    def name(self) -> str:
        return str(self.record["task"])

    @property
    def of(self) -> str:
        """The task of which this is one, or a variant."""
        return str(self.record.get("of", self.name))

    @property
    def variant(self) -> str:
        """What differs: the "model", the settings, which are those of the "paper", or neither."""
        return str(self.record.get("variant", ""))

    @property
    def model(self) -> str:
        return str(self.record["settings"]["model"])

    @property
    def max_k(self) -> float:
        return float(self.record.get("max_k", self.record["ks"][-1]))

    @property
    def top_n(self) -> str:
        return str(self.record["top_n"])

    def only(self, seeds: Sequence[int]) -> Analysis:
        """The same with these seeds alone; what was chosen with all of them stays chosen."""
        arms = [arm | {"seeds": [run for run in arm["seeds"] if run["seed"] in seeds]} for arm in self.record["arms"]]
        return replace(self, record=self.record | {"seeds": list(seeds), "arms": arms})

    @property
    def whole(self) -> list[str]:
        """Rules of which every seed is done."""
        seeds = len(self.record["seeds"])
        return [arm["rule"] for arm in self.record["arms"] if len(arm["seeds"]) == seeds]

    @property
    def fixed(self) -> list[int]:
        return [int(rule) for rule in self.whole if rule.isdigit()]

    @property
    def k_star(self) -> int:
        return int(self.record["k_star"])

    @property
    def k_best(self) -> int:
        """The fixed K with the best validation AUC."""
        return int(self.record["k_best"])

    @cached_property
    def measured(self) -> dict[str, dict[str, Measured]]:
        """By metric, then by rule."""
        folds = self.record["settings"]["folds"]
        return {
            metric: measure(self.ranks, self.whole, self.record["seeds"], metric, folds)
            for metric in ("auc", self.top_n)
        }

    @cached_property
    def ranks(self) -> dict[tuple[str, int], Ranks]:
        return ranks_of(self.folder, self.name)

    @cached_property
    def candidates(self) -> float:
        """M: among how many a test query is ranked, on average."""
        return float(np.mean([self.ranks["1", seed].sizes.mean() for seed in self.record["seeds"]]))

    def difference(self, rule: str, other: str, metric: str = "auc") -> Measured:
        return self.measured[metric][rule] - self.measured[metric][other]

    def best(self, metric: str) -> int:
        """The fixed K with the best mean of this metric on validation; of equal ones the smallest."""
        fixed = {arm["k"]: arm for arm in self.record["arms"] if arm["rule"] in map(str, self.fixed)}
        means = {k: np.mean([run["val"][metric] for run in arm["seeds"]]) for k, arm in fixed.items()}
        return int(max(means, key=lambda k: (means[k], -k)))

    def regret(self, k: float, metric: str = "auc") -> Measured:
        """Quality at the K that is best by this metric on validation, less that at the trained K nearest to ``k``."""
        return self.difference(str(self.best(metric)), str(self.nearest(k)), metric)

    def share(self, k: int, metric: str) -> Contrast:
        """(q(k) - q(1)) / (q(best) - q(1)) of a trained K; "best" is the K with the highest mean on test."""
        return ratio(self.difference(str(k), "1", metric), self.difference(str(self.highest(metric)), "1", metric))

    def highest(self, metric: str) -> int:
        """The fixed K with the highest mean on test."""
        return max(self.fixed, key=lambda k: (self.measured[metric][str(k)].mean, -k))

    def share_at(self, k: float, metric: str) -> float:
        """The same at any K: a straight line in log K between trained ones; the ends are held."""
        means = np.array([self.measured[metric][str(each)].mean for each in self.fixed])
        return float(np.interp(math.log(k), np.log(self.fixed), (means - means[0]) / (means.max() - means[0])))

    def nearest(self, k: float) -> int:
        return min(self.fixed, key=lambda other: round(abs(math.log(k / other)), 9))

    @cached_property
    def pilot(self) -> dict[str, Any]:
        """What the estimate was made from, ready for `optimal_k`."""
        run = next(arm for arm in self.record["arms"] if arm["rule"] == "1")["seeds"][0]
        train, val = run["curve"]["train"], run["curve"]["val"]
        return {
            "train_auc": [bounded_auc(auc, train["pairs"]) for auc in train["auc"]],
            "val_auc": [bounded_auc(auc, val["pairs"]) for auc in val["auc"]],
            "train_steps": train["step"],
            "steps": val["step"],
            "train_se": train["auc_se"],
            "val_se": val["auc_se"],
        }

    def curve(self, lam: float) -> tuple[Floats, Floats]:
        """K and v(K) at another lambda, from the same pilot."""
        found = optimal_k(**self.pilot, lam=lam, max_k=self.max_k)
        return np.array(found.curve.k), np.array(found.curve.v)

    def k_at(self, lam: float) -> float:
        return optimal_k(**self.pilot, lam=lam, max_k=self.max_k).k

    @cached_property
    def fit(self) -> Fit:
        return fit_of(self.pilot, self.max_k)


@dataclass(frozen=True)
class Fit:
    """mu (1 - e^(-t/tau)) through the pilot's validation separation: its values, residuals and K* by it."""

    mu: float
    tau: float
    steps: tuple[float, ...]
    measured: tuple[float, ...]
    fitted: tuple[float, ...]
    k: float

    @property
    def rms(self) -> float:
        return float(np.sqrt(np.mean((np.array(self.measured) - np.array(self.fitted)) ** 2)))

    @property
    def largest(self) -> float:
        return float(np.abs(np.array(self.measured) - np.array(self.fitted)).max())


def fit_of(pilot: Mapping[str, Any], max_k: float) -> Fit:
    """Least squares: mu in closed form for each tau of a fine grid, so nothing can fail to converge."""
    steps, mus = np.array(pilot["steps"], float), separation(np.array(pilot["val_auc"]))
    taus = np.geomspace(steps[1] / 10, steps[-1] * 10, 2000)
    rise = 1 - np.exp(-steps / taus[:, None])  # (taus, n)
    asymptote = (rise @ mus) / (rise**2).sum(1)
    best = int((((asymptote[:, None] * rise) - mus) ** 2).sum(1).argmin())
    fitted = asymptote[best] * rise[best]
    # The same reading of the pilot with the fitted curve in place of the measured one.
    fine = np.linspace(0, steps[-1], 200)
    curve = auc(asymptote[best] * (1 - np.exp(-fine / taus[best])))
    found = optimal_k(
        train_auc=pilot["train_auc"], train_steps=pilot["train_steps"], val_auc=curve, steps=fine, max_k=max_k
    )
    return Fit(
        float(asymptote[best]),
        float(taus[best]),
        tuple(steps.tolist()),
        tuple(mus.tolist()),
        tuple(fitted.tolist()),
        found.k,
    )


def load_analysis(folder: Path, task: str) -> Analysis:
    return Analysis(folder, read(folder, task))

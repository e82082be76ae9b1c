"""What a rule that needs no sweep loses, and how K, the cut-off and the gain hang together: from the standings.

``share(K) = (q(K) - q(1)) / (q(best) - q(1))``; "best" is the K with the highest mean on test. M candidates, cut-off n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from evidence.analysis import Analysis
from evidence.markdown import percent, table
from evidence.quality import Floats
from negwise import k_for_metric
from negwise.report import metric_name

Analyses = Mapping[str, Analysis]
CUTS = (1, 5, 10, 50, 100, 200, 400)
NEARLY = 0.9
"""Nearly all of the gain."""
FORMULA = (11.0, 0.36)
"""c and p of K = c (M / n_w)^p, as an earlier reading of the same records has them."""


def discount_area(metric: str) -> float:
    """n_w: n for hit@n, the sum of the discounts for ndcg@n."""
    name, _, n = metric.partition("@")
    return float(n) if name == "hit" else math.fsum(1 / math.log2(place + 2) for place in range(int(n)))


def wanted(one: Analysis) -> float:
    """M / n_w for the top-n metric of the task."""
    return one.candidates / discount_area(one.top_n)


RULES: dict[str, Callable[[Analysis], float]] = {
    "K* of the pilot": lambda one: float(one.k_star),
    "always 20": lambda _: 20.0,
    "always 100": lambda _: 100.0,
    "always 300": lambda _: 300.0,
    "M / n_w": wanted,
    "at least 64, else M / n_w (`metric`)": lambda one: k_for_metric(one.top_n, round(one.candidates)),
    "11 (M / n_w)^.36": lambda one: FORMULA[0] * wanted(one) ** FORMULA[1],
    "as many as there are": lambda one: float(one.fixed[-1]),
}
"""Each gives one K a task, by its top-n metric; quality is read there for AUC too."""


def lost(one: Analysis, rule: str, metric: str) -> tuple[float, float]:
    """K of the rule within the sweep, and the share of the gain that it loses."""
    k = min(max(RULES[rule](one), 1.0), float(one.fixed[-1]))
    return k, 1 - one.share_at(k, metric)


def mean_lost(found: Sequence[Analysis], rule: str, top: bool) -> float:
    """The mean share lost over data sets, in AUC or in each one's top-n metric."""
    return float(np.mean([lost(one, rule, one.top_n if top else "auc")[1] for one in found]))


def rules(found: Analyses) -> str:
    """A row a rule: K, and the share lost in AUC and in the top n, for each data set; then the means."""
    rows = []
    for rule in RULES:
        cells = []
        for one in found.values():
            (k, auc), (_, top) = lost(one, rule, "auc"), lost(one, rule, one.top_n)
            cells.append(f"{k:,.0f}: {percent(auc)}, {percent(top)}")
        means = [percent(mean_lost(list(found.values()), rule, top)) for top in (False, True)]
        rows.append([rule, *cells, *means])
    names = [f"{name}: K; AUC, {metric_name(one.top_n)}" for name, one in found.items()]
    return table(["rule", *names, "mean, AUC", "mean, top n"], rows)


@dataclass(frozen=True)
class Depth:
    """hit@n of every fixed K, means over seeds: ``shares`` (K,) of the gain at ``ks`` (K,), and the gain itself."""

    n: int
    ratio: float
    ks: Floats
    shares: Floats
    gain: float

    def at(self, k: float) -> float:
        """The share at any K within the sweep."""
        return float(np.interp(np.log(k), np.log(self.ks), self.shares))

    @property
    def best(self) -> int:
        return int(self.ks[int(self.shares.argmax())])

    @property
    def nearly(self) -> float:
        """The smallest K with 90% of the gain, by a straight line in log K."""
        over = int(np.argmax(self.shares >= NEARLY))
        ends, shares = np.log(self.ks[over - 1 : over + 1]), self.shares[over - 1 : over + 1]
        return float(np.exp(np.interp(NEARLY, shares, ends)))


def depth(one: Analysis, n: int) -> Depth:
    """hit@n from the standings of every query: how many candidates are above its positive."""
    seeds = one.record["seeds"]
    hits = np.array([np.mean([(one.ranks[str(k), seed].above < n).mean() for seed in seeds]) for k in one.fixed])
    gain = float(hits.max() - hits[0])
    return Depth(n, one.candidates / n, np.array(one.fixed, float), (hits - hits[0]) / gain, gain)


def depths(found: Analyses) -> str:
    """hit@n by cut-off: M / n, the share of the gain there, the K that has nearly all of it, and the best K."""
    rows = []
    for name, one in found.items():
        for n in CUTS:
            each = depth(one, n)
            reached = each.ratio <= each.ks[-1]
            share = percent(each.at(each.ratio)) if reached else "beyond the sweep"
            rows.append([name, str(n), f"{each.ratio:,.0f}", share, f"{each.nearly:,.0f}", f"{each.best:,}"])
    return table(["data", "n", "M / n", "share at K = M / n", "K for 90% of the gain", "best K"], rows)


def nearly_fit(found: Sequence[Analysis], cuts: Sequence[int] = CUTS) -> tuple[float, float, float]:
    """c and p of K = c (M / n)^p for 90% of the gain in hit@n, by least squares of log K; and their correlation."""
    each = [depth(one, n) for one in found for n in cuts]
    x, y = np.log([one.ratio for one in each]), np.log([one.nearly for one in each])
    fit = least_squares(lambda at: at[0] + at[1] * x - y, [0.0, 0.3]).x
    return float(np.exp(fit[0])), float(fit[1]), float(np.corrcoef(x, y)[0, 1])

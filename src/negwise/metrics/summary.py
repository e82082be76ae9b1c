"""What an evaluation adds up to, and how sure it is: sums over queries that merge by addition.

A batch, a shard or a rank makes a `MetricSummary` of its own; the tally of all of them is their sum, with the same
values, counts and standard errors as one pass over everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.metrics import per_query
from negwise.metrics.ranks import Ranks


@dataclass(frozen=True)
class Ratio:
    """``sum of y / sum of x`` over ``n`` queries, with its standard error.

    Queries are the independent units, whatever happens inside of them: one with many positives or pairs is
    still one draw, which brings the pair (x, y). This is the ratio estimator over clusters:

    ``value R = sum y / sum x``,  ``se^2 = n / (n - 1) * sum (y - R x)^2 / (sum x)^2``,

    its bias is of order 1 / n, and with x = 1 it is the mean with the usual standard error.
    """

    n: int
    y: float
    x: float
    yy: float
    xy: float
    xx: float

    @classmethod
    def of(cls, y: ArrayLike, x: ArrayLike = 1.0) -> Ratio:
        """The ratio over queries with values ``y`` (n,) and weights ``x`` (n,)."""
        y_values, x_values = np.broadcast_arrays(np.asarray(y, dtype=np.float64), np.asarray(x, dtype=np.float64))
        return cls(
            n=y_values.size,
            y=float(y_values.sum()),
            x=float(x_values.sum()),
            yy=float(y_values @ y_values),
            xy=float(y_values @ x_values),
            xx=float(x_values @ x_values),
        )

    @property
    def value(self) -> float:
        """NaN without queries."""
        return self.y / self.x if self.n else math.nan

    @property
    def se(self) -> float:
        """NaN with fewer than two queries, which say nothing about how much queries differ."""
        if self.n < 2:
            return math.nan
        squares = self.yy - 2 * self.value * self.xy + self.value**2 * self.xx
        # Rounding may leave a sum of squares just below 0 where all queries agree.
        return math.sqrt(self.n / (self.n - 1) * max(squares, 0.0)) / self.x

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(*(mine + its for mine, its in zip(_fields(self), _fields(other), strict=True)))


@dataclass(frozen=True)
class MetricSummary:
    """Every metric over ``queries`` queries, and how many more had ``no_positive`` or ``no_negative``.

    ``tally["ndcg@10"].value``, ``tally.auc.value`` and ``.se``; ``a + b`` is the tally of both together.
    """

    queries: int
    no_positive: int
    no_negative: int
    metrics: Mapping[str, Ratio]

    def __getitem__(self, name: str) -> Ratio:
        if name not in self.metrics:
            raise InputError(f"no metric {name!r} in this tally; it has {', '.join(self.metrics)}")
        return self.metrics[name]

    @property
    def auc(self) -> Ratio:
        return self["auc"]

    @property
    def wins(self) -> float:
        """Pairs of a positive and a negative of the same query in the right order, ties half."""
        return self["auc_pooled"].y

    @property
    def pairs(self) -> int:
        return round(self["auc_pooled"].x)

    def __add__(self, other: MetricSummary) -> MetricSummary:
        if self.metrics.keys() != other.metrics.keys():
            odd = sorted(self.metrics.keys() ^ other.metrics.keys())
            raise InputError(f"these tallies differ in {', '.join(odd)}; evaluate both with the same cut-offs")
        return MetricSummary(
            self.queries + other.queries,
            self.no_positive + other.no_positive,
            self.no_negative + other.no_negative,
            {name: ratio + other.metrics[name] for name, ratio in self.metrics.items()},
        )

    def __radd__(self, other: object) -> MetricSummary:
        """``sum(tallies)`` starts from 0."""
        if other == 0:
            return self
        return NotImplemented

    def record(self) -> dict[str, Any]:
        """The fields of an evaluation in a run log; null where a value or its standard error is undefined."""
        values = {name: _or_none(ratio.value) for name, ratio in self.metrics.items()}
        errors = {f"{name}_se": _or_none(ratio.se) for name, ratio in self.metrics.items()}
        return {
            "auc": values["auc"],
            "auc_se": errors["auc_se"],
            "queries": self.queries,
            "pairs": self.pairs,
            "no_positive": self.no_positive,
            "no_negative": self.no_negative,
            "metrics": {name: value for name, value in (values | errors).items() if name not in ("auc", "auc_se")},
        }

    def to_dict(self) -> dict[str, Any]:
        """The sums themselves, for JSON; `from_dict` gives the same tally back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, sums: Mapping[str, Any]) -> MetricSummary:
        return cls(**{**sums, "metrics": {name: Ratio(**ratio) for name, ratio in sums["metrics"].items()}})


def evaluate(ranks: Ranks, cutoffs: Iterable[int] = (5, 10)) -> MetricSummary:
    """All metrics over the queries of ``ranks``.

    ============  ==========================================================================================
    auc           mean over positives of the share of its own query's negatives below it, ties 1/2
    auc_pooled    share of all pairs of a positive and a negative of the same query in the right order
    auc_query     mean over queries of the AUC of each (MIND's)
    mrr           mean over queries of the mean of 1 / rank over their positives (MIND's)
    rr            mean over queries of 1 / rank of their best positive
    ndcg@n        mean over queries of nDCG with binary gains over the first ``n``, for each n of ``cutoffs``
    hit@n         share of queries with a positive among the first ``n``
    ============  ==========================================================================================

    With one positive in every query auc, auc_query, and mrr and rr, are the same. The AUC of all scores
    thrown together, queries or not, is that of one large query: ``offsets = [0, N]``.
    """
    scored = ranks.scored
    positives, negatives = ranks.positives[scored], ranks.negatives[scored]
    wins = per_query.wins(ranks)[scored]
    metrics = {
        "auc": Ratio.of(wins / negatives, positives),
        "auc_pooled": Ratio.of(wins, positives * negatives),
        "auc_query": Ratio.of(wins / (positives * negatives)),
        "mrr": Ratio.of(per_query.mrr(ranks)[scored]),
        "rr": Ratio.of(per_query.reciprocal_rank(ranks)[scored]),
    }
    cuts = sorted(set(cutoffs))
    metrics |= {f"ndcg@{n}": Ratio.of(per_query.ndcg(ranks, n)[scored]) for n in cuts}
    metrics |= {f"hit@{n}": Ratio.of(per_query.hit_rate(ranks, n)[scored]) for n in cuts}
    return MetricSummary(
        queries=int(scored.sum()),
        no_positive=int((ranks.positives == 0).sum()),
        no_negative=int(((ranks.positives > 0) & (ranks.negatives == 0)).sum()),
        metrics=metrics,
    )


def _fields(ratio: Ratio) -> tuple[Any, ...]:
    return ratio.n, ratio.y, ratio.x, ratio.yy, ratio.xy, ratio.xx


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value

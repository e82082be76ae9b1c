"""Metrics of an evaluation with their standard errors, kept as sums over queries so that they merge by addition.

Each batch, shard or rank makes its own `MetricSummary`. Their sum has the same values, counts and standard errors as
one pass over all queries.
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

    Queries are the independent units. A query with many positives or pairs is still one draw of the pair (x, y).
    This is the ratio estimator over clusters:

    ``value R = sum y / sum x``,  ``se^2 = n / (n - 1) * sum (y - R x)^2 / (sum x)^2``.

    Its bias is of order 1 / n. With x = 1 it is the mean with the usual standard error.
    """

    n: int
    y: float
    x: float
    yy: float
    xy: float
    xx: float

    @classmethod
    def of(cls, y: ArrayLike, x: ArrayLike = 1.0) -> Ratio:
        """The ratio over queries with numerators ``y`` (n,) and denominators ``x`` (n,)."""
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
        """sum of y / sum of x; NaN without queries."""
        return self.y / self.x if self.n else math.nan

    @property
    def se(self) -> float:
        """The standard error; NaN with fewer than two queries, where no variance can be estimated."""
        if self.n < 2:
            return math.nan
        squares = self.yy - 2 * self.value * self.xy + self.value**2 * self.xx
        # If all queries agree, rounding may leave a sum of squares just below 0.
        return math.sqrt(self.n / (self.n - 1) * max(squares, 0.0)) / self.x

    def __add__(self, other: Ratio) -> Ratio:
        return Ratio(*(mine + its for mine, its in zip(_fields(self), _fields(other), strict=True)))


@dataclass(frozen=True)
class MetricSummary:
    """Every metric over ``queries`` queries. ``no_positive`` and ``no_negative`` count the queries left out.

    ``summary["ndcg@10"].value``, ``summary.auc.value`` and ``.se``; ``a + b`` is the summary of both.
    """

    queries: int
    no_positive: int
    no_negative: int
    metrics: Mapping[str, Ratio]

    def __getitem__(self, name: str) -> Ratio:
        if name not in self.metrics:
            raise InputError(f"no metric {name!r} in this summary; it has {', '.join(self.metrics)}")
        return self.metrics[name]

    @property
    def auc(self) -> Ratio:
        return self["auc"]

    @property
    def wins(self) -> float:
        """(positive, negative) pairs of the same query in the right order; a tie counts 1/2."""
        return self["auc_pooled"].y

    @property
    def pairs(self) -> int:
        return round(self["auc_pooled"].x)

    def __add__(self, other: MetricSummary) -> MetricSummary:
        if self.metrics.keys() != other.metrics.keys():
            odd = sorted(self.metrics.keys() ^ other.metrics.keys())
            raise InputError(f"the two summaries differ in {', '.join(odd)}; evaluate both with the same cutoffs")
        return MetricSummary(
            self.queries + other.queries,
            self.no_positive + other.no_positive,
            self.no_negative + other.no_negative,
            {name: ratio + other.metrics[name] for name, ratio in self.metrics.items()},
        )

    def __radd__(self, other: object) -> MetricSummary:
        """``sum(summaries)`` starts from 0."""
        if other == 0:
            return self
        return NotImplemented

    def record(self) -> dict[str, Any]:
        """The fields of an evaluation record in a run log; None for an undefined value or standard error."""
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
        """The sums, ready for JSON. `from_dict` restores the same summary."""
        return asdict(self)

    @classmethod
    def from_dict(cls, sums: Mapping[str, Any]) -> MetricSummary:
        return cls(**{**sums, "metrics": {name: Ratio(**ratio) for name, ratio in sums["metrics"].items()}})


def evaluate(ranks: Ranks, cutoffs: Iterable[int] = (5, 10)) -> MetricSummary:
    """All metrics over the queries of ``ranks``.

    ============  ==========================================================================================
    auc           mean over positives of the share of negatives of the same query below it, ties 1/2
    auc_pooled    share of all (positive, negative) pairs of the same query in the right order, ties 1/2
    auc_query     mean over queries of the AUC of each query (MIND's)
    mrr           mean over queries of the mean of 1 / rank over their positives (MIND's)
    rr            mean over queries of 1 / rank of their best positive
    ndcg@n        mean over queries of nDCG with binary gains over the first ``n``, for each n of ``cutoffs``
    hit@n         share of queries with a positive among the first ``n``
    ============  ==========================================================================================

    With one positive in every query, auc equals auc_query and mrr equals rr. For the AUC of all scores together,
    pass them as one query: ``offsets = [0, N]``.
    """
    cuts = sorted(set(cutoffs))
    names = [*_PLAIN, *(f"ndcg@{n}" for n in cuts), *(f"hit@{n}" for n in cuts)]
    return MetricSummary(
        queries=int(ranks.scored.sum()),
        no_positive=int((ranks.positives == 0).sum()),
        no_negative=int(((ranks.positives > 0) & (ranks.negatives == 0)).sum()),
        metrics={name: Ratio.of(*_terms(ranks, name)) for name in names},
    )


def difference(ranks: Ranks, others: Ranks, metric: str) -> Ratio:
    """``metric`` of ``ranks`` less that of ``others``, paired by query: ``sum (y - y') / sum x``.

    Both rank the same queries, so that their denominators x are the same. The standard error is that of `Ratio`.
    """
    for name in ("positives", "sizes"):
        if not np.array_equal(getattr(ranks, name), getattr(others, name)):
            raise InputError(
                f"the two rankings differ in the {name} of their queries ({len(ranks.sizes)} and {len(others.sizes)} "
                "queries), so they cannot be paired. Rank the same queries among the same candidates."
            )
    (mine, weights), (theirs, _) = _terms(ranks, metric), _terms(others, metric)
    return Ratio.of(mine - theirs, weights)


def _terms(ranks: Ranks, metric: str) -> tuple[per_query.Floats, ArrayLike]:
    """Numerator (n,) and denominator of ``metric`` for each query that is scored."""
    scored = ranks.scored
    stem, at, cut = metric.partition("@")
    if at and cut.isdigit() and stem in _CUT:
        return _CUT[stem](ranks, int(cut))[scored], 1.0
    if metric not in _PLAIN:
        raise InputError(f"metric: got {metric!r}, expected {', '.join(_PLAIN)}, ndcg@N or hit@N.")
    if not metric.startswith("auc"):
        return _PLAIN[metric](ranks)[scored], 1.0
    positives, negatives, wins = ranks.positives[scored], ranks.negatives[scored], per_query.wins(ranks)[scored]
    if metric == "auc":
        return wins / negatives, positives
    return (wins, positives * negatives) if metric == "auc_pooled" else (wins / (positives * negatives), 1.0)


_PLAIN = {
    "auc": per_query.wins,
    "auc_pooled": per_query.wins,
    "auc_query": per_query.wins,
    "mrr": per_query.mrr,
    "rr": per_query.reciprocal_rank,
}
_CUT = {"ndcg": per_query.ndcg, "hit": per_query.hit_rate}


def _fields(ratio: Ratio) -> tuple[Any, ...]:
    return ratio.n, ratio.y, ratio.x, ratio.yy, ratio.xy, ratio.xx


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value

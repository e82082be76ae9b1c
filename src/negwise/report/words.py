"""Numbers and names as a person reads them."""

from __future__ import annotations

_METRICS = {"auc": "AUC", "ndcg": "nDCG", "hit": "HR", "mrr": "MRR", "rr": "reciprocal rank"}

VERDICTS = {
    "ok": "The curves determine K.",
    "capped": "A best K was found, but the curves do not pin down its size. Take it as a direction, not as a number.",
    "vacuous": "The curves do not determine K: no K is better than any other by an amount that means something.",
    "inconsistent": "The curves contradict each other, so no K should be read from them.",
}

UNSETTLED = "The curves determine K as far as they go; the pilot had not converged."
"""The verdict "ok" where K* is a lower bound or not settled."""


def metric_name(name: str) -> str:
    """hit@5 -> HR@5, auc -> AUC."""
    stem, at, n = name.partition("@")
    return f"{_METRICS.get(stem, stem)}{at}{n}"


def count(value: float) -> str:
    """1234 -> 1,234; 20.6 -> 20.6."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def seconds(value: float) -> str:
    """42 -> 42 s, 95 -> 1 min 35 s, 4000 -> 1 h 7 min."""
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def signed(value: float, digits: int = 4) -> str:
    return f"{value:+.{digits}f}".replace("-", "\N{MINUS SIGN}")

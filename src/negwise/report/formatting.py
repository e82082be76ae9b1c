"""Numbers, values and names of metrics as text."""

from __future__ import annotations

from typing import Any

_METRICS = {"auc": "AUC", "ndcg": "nDCG", "hit": "HR", "mrr": "MRR", "rr": "reciprocal rank"}


def metric_name(name: str) -> str:
    """hit@5 -> HR@5, auc -> AUC."""
    stem, at, n = name.partition("@")
    return f"{_METRICS.get(stem, stem)}{at}{n}"


def format_count(value: float) -> str:
    """1234 -> 1,234; 20.6 -> 20.6."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def format_seconds(value: float) -> str:
    """42 -> 42 s, 95 -> 1 min 35 s, 4000 -> 1 h 7 min."""
    if value < 60:
        return f"{value:.2g} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def format_signed(value: float) -> str:
    """0.01 -> +0.0100, with a true minus sign below 0."""
    return f"{value:+.4f}".replace("-", "\N{MINUS SIGN}")


def format_value(value: Any) -> str:
    """A value of a record: True -> yes, 10000 -> 10,000, [1, 2] -> 1, 2."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}" if abs(value) >= 10_000 else str(value)
        case float():
            return format_count(value)
        case list() | tuple():
            return ", ".join(format_value(item) for item in value) or "none"
        case dict():
            return ", ".join(f"{name}: {format_value(item)}" for name, item in value.items()) or "none"
        case _:
            return str(value)

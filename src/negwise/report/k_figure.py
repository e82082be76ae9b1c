"""Measured quality against K, where more than one K was trained."""

from __future__ import annotations

from collections.abc import Sequence

from negwise.report.figure import Figure, Row, Spec, short
from negwise.report.marks import HEIGHT, hint, k_axis, known, note, only, quantity
from negwise.report.subject import Arm, Subject
from negwise.report.words import metric_name
from negwise.theory.estimate import Estimate

HOW = ["fixed K", "schedule"]


def quality_against_k(subject: Subject) -> Figure | None:
    """AUC and the top-n metric on the test split against K, where there is more than one K."""
    metrics = subject.metrics[:2]
    rows = [row for metric in metrics for arm in subject.arms for row in _k_rows(arm, metric)]
    ks = {float(str(row["k"])) for row in rows}
    if len(ks) < 2:
        return None
    estimate = subject.estimate
    marked = [] if estimate is None or estimate.verdict == "inconsistent" else [estimate.k]
    domain = [min(*ks, *marked) / 1.25, max(*ks, *marked) * 1.25]
    shown = [metric for metric in metrics if any(row["metric"] == metric for row in rows)]
    panels = tuple(_k_panel(metric, rows, domain, estimate if marked else None) for metric in shown)
    caption = (
        "Test scores of the trained models. Small dots are single seeds, large ones their mean with its standard error."
    )
    if any(row["how"] == "schedule" for row in rows):
        caption += " Diamonds are schedules, beside the K they rise to; the line joins fixed K."
    if marked:
        caption += " Shaded: the range that the estimate calls as good; red: its K*."
    return Figure("quality_against_k", "Measured quality against K", caption, panels, rows, columns=len(panels))


def _k_rows(arm: Arm, metric: str) -> list[Row]:
    """A row for each seed, and one for their mean."""
    if arm.k is None or arm.k <= 0:
        return []
    how = "fixed K" if arm.fixed else "schedule"
    row: Row = {"metric": metric, "arm": arm.name, "how": how, "k": short(arm.k)}
    if arm.group:
        row["from"] = arm.group
    scores = [
        (trial.seed, value) for trial in arm.done if trial.test and (value := trial.test.value(metric)) is not None
    ]
    if not scores:
        return []
    mean = arm.test(metric)
    assert mean.value is not None
    ends: Row = {} if mean.se is None else {"low": short(mean.value - mean.se), "high": short(mean.value + mean.se)}
    seeds = [
        row | {"of": "seed", "seed": seed, "value": short(value), "low": None, "high": None} for seed, value in scores
    ]
    return [*seeds, row | {"of": "mean", "seed": None, "value": short(mean.value), "low": None, "high": None} | ends]


def _k_panel(metric: str, rows: Sequence[Row], domain: list[float], estimate: Estimate | None) -> Spec:
    x, y = k_axis(domain=domain), quantity("value", f"test {metric_name(metric)}")
    how: Spec = {"field": "how", "type": "nominal", "scale": {"domain": HOW}, "legend": {"title": None}}
    if not any(row["how"] == "schedule" for row in rows):
        how["legend"] = None
    shape: Spec = {**how, "scale": {"domain": HOW, "range": ["circle", "diamond"]}}
    sources = list(dict.fromkeys(row["from"] for row in rows if "from" in row))  # folders, in a comparison
    color: Spec = {**how, "field": "from", "scale": {"domain": sources}, "legend": {"title": None}} if sources else how
    hints = [
        hint("arm", "arm"),
        hint("k", "K", ",.4~g"),
        hint("of", "of"),
        hint("seed", "seed"),
        hint("value", metric_name(metric), ".4f"),
        hint("low", "mean - se", ".4f"),
        hint("high", "mean + se", ".4f"),
    ]
    place: Spec = {"x": x, "y": y, "color": color}
    joined = {"type": "line", "strokeWidth": 1.5, "opacity": 0.6}
    layers: list[Spec] = [
        {"transform": [only("of", "mean"), only("how", "fixed K")], "mark": joined, "encoding": place},
        *_scores("fixed K", 0, place, shape, hints),
        *_scores("schedule", 9, place, shape, hints),  # beside the fixed K that they rise to, not upon it
    ]
    return {
        "title": metric_name(metric),
        "height": HEIGHT,
        "usermeta": {"longestLabel": max(len(str(name)) for name in [*HOW, *sources])},
        "transform": [only("metric", metric)],
        "layer": [*_estimate_layers(estimate, domain, x), *layers],
    }


def _scores(how: str, aside: int, place: Spec, shape: Spec, hints: list[Spec]) -> list[Spec]:
    """Seeds, means and error bars of one kind of arm, ``aside`` pixels to the right."""
    seeds, means = [only("how", how), only("of", "seed")], [only("how", how), only("of", "mean")]
    dots: Spec = {**place, "shape": shape, "tooltip": hints}
    ends: Spec = {**place, "y": {**place["y"], "field": "low"}, "y2": {"field": "high"}}
    bar = {"type": "rule", "strokeWidth": 2, "xOffset": aside}
    small = {"type": "point", "filled": True, "style": "seed", "xOffset": aside}
    large = {"type": "point", "filled": True, "size": 110, "opacity": 1, "xOffset": aside}
    return [
        {"transform": [*means, known("low")], "mark": bar, "encoding": ends},
        {"transform": seeds, "mark": small, "encoding": dots},
        {"transform": means, "mark": large, "encoding": dots},
    ]


def _estimate_layers(estimate: Estimate | None, domain: list[float], x: Spec) -> list[Spec]:
    """The range as good, and K*."""
    if estimate is None:
        return []
    low = max(float(estimate.flat[0]), domain[0])
    high = domain[1] if estimate.flat[1] is None else min(float(estimate.flat[1]), domain[1])
    data, best = {"values": [{"k": low, "end": high}]}, {"values": [{"k": estimate.k}]}
    left = estimate.k > (domain[0] * domain[1] ** 2) ** (1 / 3)
    label = note("K*", style="answer-text", align="right" if left else "left", dx=-5 if left else 5, dy=9)
    label["encoding"] |= {"x": x, "y": {"value": 0}}
    return [
        {"data": data, "mark": {"type": "rect", "style": "band"}, "encoding": {"x": x, "x2": {"field": "end"}}},
        {"data": best, "mark": {"type": "rule", "style": "answer", "strokeWidth": 1.5}, "encoding": {"x": x}},
        {"data": best, **label},
    ]

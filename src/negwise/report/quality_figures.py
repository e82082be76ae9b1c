"""Figures of the trained models: measured quality against K, and what they recommend."""

from __future__ import annotations

from collections.abc import Sequence

from negwise.report.figure import Figure, Row, Spec, round_digits
from negwise.report.formatting import metric_name
from negwise.report.report_data import ArmRuns, ReportData
from negwise.report.vega_lite import HEIGHT, k_axis, quantitative, text_mark, tooltip, where_equal, where_valid
from negwise.theory.estimate import Estimate

ARM_KINDS = ["fixed K", "schedule"]


def quality_against_k(report: ReportData) -> Figure | None:
    """AUC and the top-n metric on the test split against K, if more than one K was trained."""
    metrics = report.metrics[:2]
    rows = [row for metric in metrics for arm in report.arms for row in _k_rows(arm, metric)]
    ks = {float(str(row["k"])) for row in rows}
    if len(ks) < 2:
        return None
    estimate = report.estimate
    marked = [] if estimate is None or estimate.verdict == "inconsistent" else [estimate.k]
    domain = [min(*ks, *marked) / 1.25, max(*ks, *marked) * 1.25]
    shown = [metric for metric in metrics if any(row["metric"] == metric for row in rows)]
    panels = tuple(_k_panel(metric, rows, domain, estimate if marked else None) for metric in shown)
    caption = (
        "Test scores of the trained models. Small dots are single seeds. Large dots are their means with the standard "
        "error over seeds, or over queries for an arm with one seed."
    )
    if any(row["how"] == "schedule" for row in rows):
        caption += " Diamonds are schedules, drawn next to the K that they rise to. The line connects fixed K."
    if marked:
        caption += " The red line is K* of the estimate. The range that it calls as good is shaded."
    return Figure("quality_against_k", "Measured quality against K", caption, panels, rows, columns=len(panels))


def recommended_items(arms: Sequence[ArmRuns]) -> Figure | None:
    """Coverage and popularity of the items that each arm recommends: means over seeds as bars, seeds as ticks."""
    rows: list[Row] = [
        {
            "arm": arm.name,
            "seed": run.seed,
            "coverage": round_digits(run.recommended.coverage),
            "popularity": round_digits(run.recommended.popularity),
            "positives_popularity": round_digits(run.recommended.positives_popularity),
        }
        for arm in arms
        for run in arm.done
        if run.recommended is not None
    ]
    if not rows:
        return None
    n = next(run.recommended.n for arm in arms for run in arm.done if run.recommended is not None)
    top = f"top {n}"
    names = [arm.name for arm in arms if any(row["arm"] == arm.name for row in rows)]
    fields = [
        ("coverage", "share of the catalogue", ".1%", "Coverage"),
        ("popularity", "training positives of an item", ",.4~g", "Popularity"),
    ]
    here = [entry for entry in fields if any(row[entry[0]] is not None for row in rows)]
    panels = tuple(_recommended_panel(names, *entry, rows) for entry in here)
    caption = (
        f"What the {top} of all test queries hold. Coverage is the share of the catalogue that is ever recommended."
    )
    if "popularity" in [field for field, *_ in here]:
        caption += (
            " Popularity is that of the recommended items. The dashed line is the popularity of the true positives. A "
            "model above it prefers popular items."
        )
    caption += " Ticks are single seeds."
    return Figure("recommended", "What is recommended", caption, panels, rows, columns=len(panels)) if panels else None


def _k_rows(arm: ArmRuns, metric: str) -> list[Row]:
    """A row for each seed, and one for their mean."""
    if arm.k is None or arm.k <= 0:
        return []
    how = "fixed K" if arm.fixed else "schedule"
    row: Row = {"metric": metric, "arm": arm.name, "how": how, "k": round_digits(arm.k)}
    if arm.group:
        row["from"] = arm.group
    tests = [(run.seed, run.test) for run in arm.done if run.test and run.test.value(metric) is not None]
    if not tests:
        return []
    mean, error = arm.test(metric), arm.error(metric)
    assert mean.value is not None
    no_bar: Row = {"low": None, "high": None}
    bar = no_bar
    if error is not None:
        bar = {"low": round_digits(mean.value - error), "high": round_digits(mean.value + error)}
    seeds = [
        row | {"of": "seed", "seed": seed, "value": round_digits(test.value(metric)), "queries": test.queries} | no_bar
        for seed, test in tests
    ]
    whole: Row = {"of": "mean", "seed": None, "value": round_digits(mean.value), "queries": tests[0][1].queries}
    return [*seeds, row | whole | bar]


def _k_panel(metric: str, rows: Sequence[Row], domain: list[float], estimate: Estimate | None) -> Spec:
    x, y = k_axis(domain=domain), quantitative("value", f"test {metric_name(metric)}")
    how: Spec = {"field": "how", "type": "nominal", "scale": {"domain": ARM_KINDS}, "legend": {"title": None}}
    if not any(row["how"] == "schedule" for row in rows):
        how["legend"] = None
    shape: Spec = {**how, "scale": {"domain": ARM_KINDS, "range": ["circle", "diamond"]}}
    sources = list(dict.fromkeys(row["from"] for row in rows if "from" in row))  # folders, in a comparison
    color: Spec = {**how, "field": "from", "scale": {"domain": sources}, "legend": {"title": None}} if sources else how
    tooltips = [
        tooltip("arm", "arm"),
        tooltip("k", "K", ",.4~g"),
        tooltip("of", "of"),
        tooltip("seed", "seed"),
        tooltip("value", metric_name(metric), ".4f"),
        tooltip("low", "mean - se", ".4f"),
        tooltip("high", "mean + se", ".4f"),
        tooltip("queries", "queries", ",d"),
    ]
    place: Spec = {"x": x, "y": y, "color": color}
    joined = {"type": "line", "strokeWidth": 1.5, "opacity": 0.6}
    layers: list[Spec] = [
        {"transform": [where_equal("of", "mean"), where_equal("how", "fixed K")], "mark": joined, "encoding": place},
        *_score_layers("fixed K", 0, place, shape, tooltips),
        *_score_layers("schedule", 9, place, shape, tooltips),  # next to the fixed K that they rise to, not on it
    ]
    return {
        "title": metric_name(metric),
        "height": HEIGHT,
        "usermeta": {"longestLabel": max(len(str(name)) for name in [*ARM_KINDS, *sources])},
        "transform": [where_equal("metric", metric)],
        "layer": [*_estimate_layers(estimate, domain, x), *layers],
    }


def _score_layers(how: str, aside: int, place: Spec, shape: Spec, tooltips: list[Spec]) -> list[Spec]:
    """Seeds, means and error bars of one kind of arm, ``aside`` pixels to the right."""
    seeds, means = (
        [where_equal("how", how), where_equal("of", "seed")],
        [where_equal("how", how), where_equal("of", "mean")],
    )
    dots: Spec = {**place, "shape": shape, "tooltip": tooltips}
    ends: Spec = {**place, "y": {**place["y"], "field": "low"}, "y2": {"field": "high"}}
    bar = {"type": "rule", "strokeWidth": 2, "xOffset": aside}
    small = {"type": "point", "filled": True, "style": "seed", "xOffset": aside}
    large = {"type": "point", "filled": True, "size": 110, "opacity": 1, "xOffset": aside}
    return [
        {"transform": [*means, where_valid("low")], "mark": bar, "encoding": ends},
        {"transform": seeds, "mark": small, "encoding": dots},
        {"transform": means, "mark": large, "encoding": dots},
    ]


def _estimate_layers(estimate: Estimate | None, domain: list[float], x: Spec) -> list[Spec]:
    """Layers for the range as good and for K*."""
    if estimate is None:
        return []
    low = max(float(estimate.flat[0]), domain[0])
    high = domain[1] if estimate.flat[1] is None else min(float(estimate.flat[1]), domain[1])
    data, best = {"values": [{"k": low, "end": high}]}, {"values": [{"k": estimate.k}]}
    left = estimate.k > (domain[0] * domain[1] ** 2) ** (1 / 3)
    label = text_mark("K*", style="answer-text", align="right" if left else "left", dx=-5 if left else 5, dy=9)
    label["encoding"] |= {"x": x, "y": {"value": 0}}
    return [
        {"data": data, "mark": {"type": "rect", "style": "band"}, "encoding": {"x": x, "x2": {"field": "end"}}},
        {"data": best, "mark": {"type": "rule", "style": "answer", "strokeWidth": 1.5}, "encoding": {"x": x}},
        {"data": best, **label},
    ]


def _recommended_panel(names: list[str], field: str, what: str, form: str, title: str, rows: Sequence[Row]) -> Spec:
    y: Spec = {
        "field": "arm",
        "type": "nominal",
        "sort": names,
        "title": None,
        "axis": {"grid": False, "labelLimit": 120},
    }
    x = quantitative(field, what, zero=True, axis={"format": "%" if form.endswith("%") else "~s", "tickCount": 5})
    arm, mean = tooltip("arm", "arm"), {"aggregate": "mean"}
    means = {"x": {**x, **mean}, "y": y, "tooltip": [arm, {**tooltip(field, f"mean {title.lower()}", form), **mean}]}
    seeds = {"x": x, "y": y, "tooltip": [arm, tooltip("seed", "seed"), tooltip(field, title.lower(), form)]}
    bar = {"type": "bar", "style": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.62}}
    layers: list[Spec] = [
        {"mark": bar, "encoding": means},
        {"mark": {"type": "tick", "thickness": 2, "opacity": 0.55}, "encoding": seeds},
    ]
    truth = [row["positives_popularity"] for row in rows if row["positives_popularity"] is not None]
    if field == "popularity" and truth:
        shown = {**quantitative("positives_popularity", what, zero=True), "aggregate": "mean"}
        tooltips = [{**tooltip("positives_popularity", "of the true positives", form), "aggregate": "mean"}]
        mark = {"type": "rule", "style": "guide", "strokeWidth": 2}
        layers.append({"mark": mark, "encoding": {"x": shown, "tooltip": tooltips}})
    return {"title": title, "height": 34 * len(names), "transform": [where_valid(field)], "layer": layers}

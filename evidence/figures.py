"""The figure of the evidence: the share of the gain over K, a panel a data set, from records alone."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from evidence.analysis import Analysis
from negwise import optimal_k, share_of_gain
from negwise.errors import require
from negwise.report import Figure, Row, Spec, k_axis, metric_name, quantitative, round_digits, where_equal

WIDTH, TALL = 235, 190
LOW, HIGH = -0.25, 1.5
"""The axis of shares; what lies beyond is cut."""
LEAST_CANDIDATES = 100
"""With fewer candidates there is no forecast for the top n."""


def shares(analysis: Analysis, title: str, pace: Mapping[str, float]) -> Figure:
    """The share of the gain in AUC and in the top n with its 95% band, the forecast, and the time of a step.

    ``pace``: milliseconds of a step by K, as strings of a record have it.
    """
    rows: list[Row] = []
    for metric in ("auc", analysis.top_n):
        name = metric_name(metric)
        for k in analysis.fixed:
            found = analysis.share(k, metric) if k > 1 else None
            share, low, high = (found.mean, found.low, found.high) if found else (0.0, 0.0, 0.0)
            ends = {"share": share, "low": max(low, LOW), "high": min(high, HIGH)}
            place: Row = {"of": "share", "metric": name, "k": k}
            rows.append(place | {field: round_digits(value) for field, value in ends.items()})
        rows += [
            {"of": "forecast", "metric": name, "k": round_digits(k), "share": round_digits(share)}
            for k, share in forecast(analysis, metric)
        ]
    rows += [{"of": "pace", "k": int(k), "ms": round_digits(ms)} for k, ms in pace.items()]
    names = [metric_name(metric) for metric in ("auc", analysis.top_n)]
    return Figure(f"share-{analysis.of}", title, "", (_panel(names, analysis.fixed, bool(pace)),), rows)


def forecast(analysis: Analysis, metric: str) -> list[tuple[float, float]]:
    """What `negwise.share_of_gain` says before any sweep: of AUC from the pilot, of the top n from M alone."""
    ks = np.geomspace(1, analysis.fixed[-1], 40)
    if metric == "auc":
        estimate = optimal_k(**analysis.pilot, max_k=analysis.max_k)
        return [(k, share_of_gain(k, estimate=estimate).share) for k in ks.tolist()] if estimate.determined else []
    if analysis.candidates < LEAST_CANDIDATES:
        return []
    many = round(analysis.candidates)
    return [(k, share_of_gain(k, metric=metric, candidates=many).share) for k in ks.tolist()]


def _panel(names: list[str], ks: list[int], timed: bool) -> Spec:
    x = k_axis(domain=[1, ks[-1]], title="K")
    x["axis"]["values"] = [1, 10, 100, 1000]
    y = quantitative("share", "share of the gain", scale={"domain": [LOW, HIGH], "nice": False})
    y["axis"] = {"format": "%", "values": [0, 0.5, 1, 1.5]}
    legend = {"title": None, "orient": "bottom", "columns": 2}
    color = {"field": "metric", "type": "nominal", "scale": {"domain": names}, "legend": legend}
    place: Spec = {"x": x, "y": y, "color": color}
    ends: Spec = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color}
    here, told = [where_equal("of", "share")], [where_equal("of", "forecast")]
    dashed = {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.5, "clip": True}
    left: Spec = {
        "layer": [
            {"transform": here, "mark": {"type": "area", "opacity": 0.16, "clip": True}, "encoding": ends},
            {"transform": told, "mark": dashed, "encoding": place},
            {"transform": here, "mark": {"type": "line", "point": True, "clip": True}, "encoding": place},
        ]
    }
    if not timed:
        return {"height": TALL, **left}
    axis = {"orient": "right", "grid": False, "tickCount": 3}
    ms = quantitative("ms", "ms a step (grey)", scale={"domain": [0, 15], "nice": False}, axis=axis)
    grey = {"type": "line", "style": "guide", "strokeDash": [1, 0], "strokeWidth": 1.5, "point": {"color": "#6b7280"}}
    right: Spec = {"transform": [where_equal("of", "pace")], "mark": grey, "encoding": {"x": x, "y": ms}}
    return {"height": TALL, "layer": [left, right], "resolve": {"scale": {"y": "independent"}}}


def small_svg(figure: Figure) -> str:
    """A figure of one panel, narrow enough for two beside each other on a page and for one on a phone."""
    spec = figure.for_file()
    spec["title"] = {"text": figure.title, "offset": 6}
    spec["concat"] = [{**panel, "width": WIDTH} for panel in spec["concat"]]
    return str(require("vl_convert", extra="plot").vegalite_to_svg(json.dumps(spec)))

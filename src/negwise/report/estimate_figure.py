"""The figures of an estimate: the AUC curves of the pilot, and effectiveness against K with its maximum."""

from __future__ import annotations

from negwise.report.figure import Figure, Rows, Spec
from negwise.report.series import MAX_ROWS, thin
from negwise.report.vega_lite import (
    HEIGHT,
    k_axis,
    line_layers,
    nearest_point_layer,
    quantitative,
    step_axis,
    text_mark,
    tooltip,
    where_valid,
)
from negwise.theory.estimate import Estimate

_STILL_ROSE = "the training AUC still rose when the pilot stopped"


def estimate_figure(estimate: Estimate, name: str = "estimate") -> Figure:
    """Both figures as two panels; v(K) alone if the estimate has no curves."""
    parts = [found for found in (auc_curves(estimate), effectiveness_curve(estimate)) if found is not None]
    notes = f"lambda {estimate.lam:g}, label separation {estimate.label_separation:.2f}, verdict: {estimate.verdict}"
    if estimate.basis in ("forecast", "lower bound"):
        notes += f". K* is a {estimate.basis}: {_STILL_ROSE}"
    panels = tuple({"title": part.title, **panel} for part in parts for panel in part.panels)
    rows = [row for part in parts for row in part.rows]
    return Figure(name, estimate.headline(), notes, panels, rows, columns=len(panels))


def auc_curves(estimate: Estimate) -> Figure | None:
    """Training and validation AUC of the pilot with T marked; None if the estimate has no curve."""
    rows = _auc_rows(estimate)
    if not rows:
        return None
    color: Spec = {
        "field": "curve",
        "type": "nominal",
        "scale": {"domain": ["validation", "training"]},
        "legend": {"title": None},
    }
    tooltips = [tooltip("curve", "curve"), tooltip("step", "step", ",.6~g"), tooltip("auc", "AUC", ".4f")]
    layers = line_layers("auc", step_axis(), quantitative("auc", "AUC"), color, tooltips)
    if len(estimate.pilot.train_auc) == 1:
        level = {"values": [{"auc": estimate.pilot.train_auc[0], "curve": "training"}]}
        mark = {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 2}
        layers.append({"data": level, "mark": mark, "encoding": {"y": quantitative("auc", "AUC"), "color": color}})
    end = estimate.pilot.val_steps[-1]
    if estimate.horizon is not None and estimate.horizon <= end:
        layers += _horizon_layers(estimate.horizon, end)
        seen = f"The dashed line is T = {estimate.horizon:g}: from there on training counts as converged."
    else:
        seen = "T, where training counts as converged, lies beyond the pilot."
    caption = (
        f"Training AUC shows how well the labels can be separated. Validation AUC shows how good the model is. {seen} "
        "The estimate averages over all steps before T."
    )
    panel = {"height": HEIGHT, "transform": [where_valid("auc")], "layer": layers}
    return Figure("auc_curves", "AUC of the pilot run", caption, (panel,), rows)


def effectiveness_curve(estimate: Estimate) -> Figure:
    """v(K) with K*, the range as good, the 90% interval and the limit 1 - lambda."""
    rows = [{"k": k, "effectiveness": v} for k, v in zip(estimate.curve.k, estimate.curve.v, strict=True)]
    last = _last_k(estimate)
    shown = [row["effectiveness"] for row in rows if row["k"] <= last]
    limit, low, high = 1 - estimate.lam, min(shown), max(shown)
    x = k_axis(domain=[1, last])
    y = quantitative(
        "effectiveness",
        "training effectiveness v",
        scale={"domain": [min(low, limit), high + 0.1 * (high - low)]},
        axis={"tickCount": 5},
    )
    values = [tooltip("k", "K", ",.4~g"), tooltip("effectiveness", "v(K)", ".4f")]
    panel = {
        "height": HEIGHT,
        "transform": [where_valid("effectiveness")],
        "layer": [
            _flat_layer(estimate, last, x),
            *_limit_layers(limit, last, x, y, right=estimate.k**2 <= last),
            *_curve_layers(x, y, values, last),
            *_best_layers(estimate, x, y, left=estimate.k > last**0.7),
            *_interval_layers(estimate, last, x),
        ],
    }
    open_end = "and more" if estimate.flat[1] is None else f"to {estimate.flat[1]}"
    caption = (
        f"The mean effectiveness of a training sample with K negatives. In theory it is highest at "
        f"K* = {estimate.k:.3g}, and the shaded range, {estimate.flat[0]} {open_end}, is as good (within 1%). "
        "With far more negatives every sample is easy, and v falls to 1 - lambda."
    )
    if estimate.interval is not None:
        caption += " The red bar on the axis is the 90% interval of K*."
    return Figure("effectiveness", "Training effectiveness against K", caption, (panel,), rows)


def _auc_rows(estimate: Estimate) -> Rows:
    pilot = estimate.pilot
    if len(pilot.val_auc) < 2:
        return []
    sides = (("training", pilot.train_steps, pilot.train_auc), ("validation", pilot.val_steps, pilot.val_auc))
    return [
        {"curve": side, "step": step, "auc": value}
        for side, steps, aucs in sides
        if len(aucs) > 1
        for step, value in thin(list(zip(steps, aucs, strict=True)), MAX_ROWS // 4)
    ]


def _horizon_layers(horizon: float, end: float) -> list[Spec]:
    data = {"values": [{"step": horizon}]}
    right = horizon > 0.7 * end  # the label stays inside the panel
    label = text_mark(
        f"T = {horizon:g}", align="right" if right else "left", dx=-5 if right else 5, dy=-6, baseline="bottom"
    )
    label["encoding"] |= {"x": step_axis(), "y": {"value": HEIGHT}}
    return [
        {"data": data, "mark": {"type": "rule", "style": "guide"}, "encoding": {"x": step_axis()}},
        {"data": data, **label},
    ]


def _last_k(estimate: Estimate) -> float:
    """The right end of the axis: where the curve is down at its limit, not where the search ended."""
    return min(estimate.curve.k[-1], max(30.0 * estimate.k, 100.0))


def _flat_layer(estimate: Estimate, last: float, x: Spec) -> Spec:
    end = last if estimate.flat[1] is None else min(estimate.flat[1], last)
    data = {"values": [{"k": estimate.flat[0], "end": end}]}
    return {"data": data, "mark": {"type": "rect", "style": "band"}, "encoding": {"x": x, "x2": {"field": "end"}}}


def _limit_layers(limit: float, last: float, x: Spec, y: Spec, *, right: bool) -> list[Spec]:
    data = {"values": [{"effectiveness": limit, "k": last if right else 1}]}
    label = text_mark("1 - lambda", align="right" if right else "left", dx=-4 if right else 4, dy=-8)
    label["encoding"] |= {"x": x, "y": y}
    return [{"data": data, "mark": {"type": "rule", "style": "guide"}, "encoding": {"y": y}}, {"data": data, **label}]


def _curve_layers(x: Spec, y: Spec, tooltips: list[Spec], last: float) -> list[Spec]:
    here, where = {"transform": [{"filter": {"field": "k", "lte": last}}]}, {"x": x, "y": y}
    return [
        {**here, "mark": {"type": "line", "style": "curve"}, "encoding": where},
        {**here, **nearest_point_layer("v", where, tooltips)},
    ]


def _best_layers(estimate: Estimate, x: Spec, y: Spec, *, left: bool) -> list[Spec]:
    data = {"values": [{"k": estimate.k, "effectiveness": estimate.margin + 1 - estimate.lam}]}
    label = text_mark(
        f"K* = {estimate.k:.3g}", style="answer-text", align="right" if left else "left", dx=-8 if left else 8, dy=-9
    )
    label["encoding"] |= {"x": x, "y": y}
    point = {"type": "point", "style": "answer", "filled": True, "size": 70, "opacity": 1}
    return [
        {"data": data, "mark": {"type": "rule", "style": "answer", "strokeWidth": 1.5}, "encoding": {"x": x}},
        {"data": data, "mark": point, "encoding": {"x": x, "y": y}},
        {"data": data, **label},
    ]


def _interval_layers(estimate: Estimate, last: float, x: Spec) -> list[Spec]:
    if estimate.interval is None:
        return []
    low, high = estimate.interval
    data = {"values": [{"k": min(low, last), "end": min(high, last)}]}
    bar = {"type": "rule", "style": "answer", "strokeWidth": 5, "strokeCap": "round", "opacity": 0.7}
    place = {"x": x, "x2": {"field": "end"}, "y": {"value": HEIGHT - 4}}
    return [{"data": data, "mark": bar, "encoding": place}]

"""Figures over training: K, the kinds of samples (eq. 5), the loss and the MI bound (eq. 2), speed, and quality."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from negwise.report.figure import Figure, Row, Spec, round_digits
from negwise.report.formatting import metric_name
from negwise.report.report_data import ArmRuns, ReportData
from negwise.report.series import CurvePoint, k_at_step, max_points, metric_curve, step_windows
from negwise.report.vega_lite import (
    HEIGHT,
    color_by_arm,
    error_band,
    k_axis,
    line_layers,
    longest_label,
    quantitative,
    step_axis,
    tooltip,
    where_equal,
    where_valid,
)
from negwise.theory.effectiveness import sample_kinds
from negwise.theory.separation import separation

KINDS = ("good", "bad", "easy")
MAX_PANELS = 9
MAX_REASONS = 6
RATE_POINTS = 40
_KIND_COLORS = ["#009E73", "#D55E00", "#a9b4c2"]  # they mean the same in light and dark
_AUC_MARGIN = 1e-12  # an AUC of 0 or 1 has no finite separation; here every share is at its limit to the last digit


def k_over_time(arms: Sequence[ArmRuns]) -> Figure | None:
    """The K of the schedule and the K that was used, over steps."""
    rows: list[Row] = []
    points = max_points(arms) // 2
    for arm in arms:
        for window in step_windows(arm, points):
            for which, name in (("scheduled", "k"), ("used", "k_used")):
                if (k := window.values[name]) is not None and k > 0:
                    rows.append({"arm": arm.name, "step": window.end, "which": which, "k": round_digits(k)})
    if not rows:
        return None
    dash = _dash_second("scheduled", "used")
    tooltips = [
        tooltip("arm", "arm"),
        tooltip("which", "K"),
        tooltip("step", "step", ",.6~g"),
        tooltip("k", "value", ",.4~g"),
    ]
    ks = [float(str(row["k"])) for row in rows]
    y = k_axis(domain=[min(1.0, *ks), max(2.0, *ks) * 1.15], title="K")
    panel = {
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "layer": line_layers("k", step_axis(), y, color_by_arm(arms), tooltips, strokeDash=dash),
    }
    caption = (
        "K is the number of negatives per positive. The solid line is the K of the schedule. The dashed line is the "
        "mean K that was used, which is lower where rows have fewer negatives."
    )
    reasons = _k_reasons(arms)
    if reasons:
        more = f"; and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
        caption += f" What set or bounded K: {'; '.join(reasons[:MAX_REASONS])}{more}."
    return Figure("k_over_time", "K over training", caption, (panel,), rows)


def sample_shares(arms: Sequence[ArmRuns], label: float) -> Figure | None:
    """Shares of good, bad and easy samples over training, one panel per arm.

    Eq. 5 with mu = ``label`` from the estimate, mu'_t from the validation AUC at step t and K as used at that step.
    """
    rows = [row for arm in arms for row in _share_rows(arm, label, max_points(arms) // len(KINDS))]
    have = {row["arm"] for row in rows}
    drawn = [arm for arm in arms if arm.name in have][:MAX_PANELS]
    if not drawn:
        return None
    panels = tuple(_shares_panel(arm) for arm in drawn)
    caption = (
        "Good samples teach the model something true, bad ones something false, easy ones nothing. More negatives turn "
        "easy samples into good ones early on, and into bad ones later. The shares follow eq. 5 of the paper at each "
        "evaluation."
    )
    names = {arm.name for arm in drawn}
    shown = [row for row in rows if row["arm"] in names]
    title = "Good, bad and easy samples over training"
    return Figure("sample_shares", title, caption, panels, shown, columns=min(len(panels), 3))


def loss_and_bound(arms: Sequence[ArmRuns]) -> Figure | None:
    """The loss with log(K+1), the loss of a guess; and in a second panel their difference, the MI bound."""
    rows: list[Row] = []
    points = max_points(arms) // 3
    for arm in arms:
        for window in step_windows(arm, points):
            for which, name in (("loss", "loss"), ("log(K+1)", "log_k1"), ("MI bound", "mi_bound")):
                if (value := window.values[name]) is not None:
                    rows.append({"arm": arm.name, "step": window.end, "which": which, "nats": round_digits(value)})
    if not rows:
        return None
    dash = _dash_second("loss", "log(K+1)")
    tooltips = [
        tooltip("arm", "arm"),
        tooltip("which", "line"),
        tooltip("step", "step", ",.6~g"),
        tooltip("nats", "nats", ".4f"),
    ]
    two = {"filter": {"field": "which", "oneOf": ["loss", "log(K+1)"]}}
    y = quantitative("nats", "nats", zero=True)
    color = color_by_arm(arms)
    left: Spec = {
        "title": "Loss (solid) and log(K+1) (dashed)",
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [two],
        "layer": line_layers("loss", step_axis(), y, color, tooltips, strokeDash=dash),
    }
    right: Spec = {
        "title": "MI bound: log(K+1) - loss",
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [where_equal("which", "MI bound")],
        "layer": line_layers("bound", step_axis(), y, color, tooltips),
    }
    panels = (left, right) if any(row["which"] == "MI bound" for row in rows) else (left,)
    caption = (
        "Losses at different K cannot be compared, because a guess has the loss log(K+1). How far the loss is below "
        "that says what the model has learned. It is a lower bound on the mutual information of query and positive."
    )
    return Figure("loss", "Loss and mutual information", caption, panels, rows, columns=len(panels))


def throughput(arms: Sequence[ArmRuns]) -> Figure | None:
    """Steps per second over training, with the time of evaluations; means over seeds."""
    rows: list[Row] = []
    for arm in arms:
        for window in step_windows(arm, min(RATE_POINTS, max_points(arms))):
            end = window.values["time"]
            if end is not None and window.start_seconds is not None and end > window.start_seconds:
                rate = (window.end - window.start) / (end - window.start_seconds)
                row: Row = {"arm": arm.name, "step": window.end, "seconds": round_digits(end)}
                rows.append(row | {"steps_per_s": round_digits(rate)})
    if not rows:
        return None
    tooltips = [
        tooltip("arm", "arm"),
        tooltip("step", "step", ",.6~g"),
        tooltip("steps_per_s", "steps/s", ".4~g"),
        tooltip("seconds", "seconds so far", ",.4~g"),
    ]
    y = quantitative("steps_per_s", "steps a second", zero=True)
    panel: Spec = {
        "height": HEIGHT - 40,
        "usermeta": longest_label(arms),
        "transform": [where_valid("steps_per_s")],
        "layer": line_layers("rate", step_axis(), y, color_by_arm(arms), tooltips),
    }
    caption = "Training speed on this machine, evaluations included. Other work on the machine lowers it."
    return Figure("throughput", "Throughput", caption, (panel,), rows)


def quality_over_time(report: ReportData) -> Figure | None:
    """Validation quality with its error, over steps and seconds; for arms that use the pilot its seconds come first."""
    metrics, arms = report.metrics[:2], report.arms
    points = max_points(arms) // len(metrics)
    rows = [
        _quality_row(arm, metric, at)
        for metric in metrics
        for arm in arms
        for at in metric_curve(arm, "val", metric, points)
    ]
    if not rows:
        return None
    clocks = ["step"] + (["seconds"] if any((row["seconds"] or 0) != 0 for row in rows) else [])
    shown = [metric for metric in metrics if any(row["metric"] == metric for row in rows)]
    panels = tuple(_time_panel(arms, metric, clock, len(clocks) > 1) for metric in shown for clock in clocks)
    caption = f"Scores on validation{_queries_text(rows)}, over steps{' and over seconds' if len(clocks) > 1 else ''}."
    if len(clocks) > 1 and any(arm.pilot_seconds > 0 for arm in arms):
        caption += " Arms that use the pilot start when it ends."
    if any(row["low"] is not None for row in rows):
        several = any((row["seeds"] or 0) != 1 for row in rows)
        over = "seeds, or over queries for an arm with one seed" if several else "queries"
        caption += f" The band is one standard error over {over}."
    return Figure(
        "quality_over_time", "Quality over training", caption, panels, rows, columns=2 if len(panels) > 1 else 1
    )


def _quality_row(arm: ArmRuns, metric: str, at: CurvePoint) -> Row:
    value, error = at.score.value, at.error
    ends = (None, None) if value is None or error is None else (value - error, value + error)
    return {
        "arm": arm.name,
        "metric": metric,
        "step": at.step,
        "seconds": None if at.seconds is None else round_digits(at.seconds + arm.pilot_seconds),
        "value": round_digits(value),
        "se": round_digits(error),
        "low": round_digits(ends[0]),
        "high": round_digits(ends[1]),
        "seeds": at.score.n,
        "queries": at.queries,
    }


def _queries_text(rows: Sequence[Row]) -> str:
    """ " (500 queries)", or the range where arms differ; nothing where no number is known."""
    counts = sorted({int(row["queries"]) for row in rows if row["queries"] is not None})
    if not counts:
        return ""
    least, most = f"{counts[0]:,}", f"{counts[-1]:,}"
    return f" ({least} queries)" if least == most else f" ({least} to {most} queries)"


def _k_reasons(arms: Sequence[ArmRuns]) -> list[str]:
    """Each reason for K in the logs, with its arm and its first step."""
    first_steps: dict[tuple[str, str], int] = {}
    for arm in arms:
        for record in (record for run in arm.seeds if run.log is not None for record in run.log.steps):
            if record.k_reason is not None:
                key = (arm.label, record.k_reason)
                first_steps[key] = min(record.step, first_steps.get(key, record.step))
    return [f"{reason} ({name}, from step {step:,})" for (name, reason), step in first_steps.items()]


def _share_rows(arm: ArmRuns, label: float, points: int) -> list[Row]:
    """A row for each evaluation and each kind of sample."""
    course = step_windows(arm, 10**9)
    found: list[Row] = []
    for at in metric_curve(arm, "val", "auc", points):
        k = k_at_step(course, at.step)
        if k is None or at.score.value is None:
            continue
        model = separation(np.clip(at.score.value, _AUC_MARGIN, 1 - _AUC_MARGIN))
        shares = sample_kinds(label, model, k)
        for kind, share in zip(KINDS, shares, strict=True):
            row: Row = {"arm": arm.name, "step": at.step, "kind": kind, "share": round_digits(float(share))}
            found.append(row | {"k": round_digits(k), "val_auc": round_digits(at.score.value)})
    return found


def _shares_panel(arm: ArmRuns) -> Spec:
    color: Spec = {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": list(KINDS), "range": _KIND_COLORS},
        "legend": {"title": None},
    }
    y = {
        "field": "share",
        "type": "quantitative",
        "title": "share of samples",
        "stack": "zero",
        "scale": {"domain": [0, 1]},
        "axis": {"format": "%"},
    }
    order = {"field": "place", "type": "quantitative"}  # good at the bottom, where the axis shows its share; bad on top
    tooltips = [
        tooltip("kind", "samples"),
        tooltip("share", "share", ".1%"),
        tooltip("step", "step", ",.6~g"),
        tooltip("k", "K", ",.4~g"),
        tooltip("val_auc", "validation AUC", ".4f"),
    ]
    place = {"x": step_axis(), "y": y, "color": color, "order": order}
    return {
        "title": arm.label,
        "height": HEIGHT - 40,
        "usermeta": {"longestLabel": max(map(len, KINDS))},
        "transform": [
            where_equal("arm", arm.name),
            where_valid("share"),
            {"calculate": "indexof(['good', 'easy', 'bad'], datum.kind)", "as": "place"},
        ],
        "layer": [
            {"mark": {"type": "area", "opacity": 0.85}, "encoding": place},
            {"mark": {"type": "point", "size": 220, "opacity": 0}, "encoding": {**place, "tooltip": tooltips}},
        ],
    }


def _dash_second(solid: str, dashed: str) -> Spec:
    """Two kinds of lines by the field ``which``. There is no legend: the caption or the title says it."""
    scale = {"domain": [solid, dashed], "range": [[1, 0], [4, 3]]}
    return {"field": "which", "type": "nominal", "scale": scale, "legend": None}


def _time_panel(arms: Sequence[ArmRuns], metric: str, clock: str, titled: bool) -> Spec:
    x = step_axis() if clock == "step" else quantitative("seconds", "seconds", zero=True, axis={"tickCount": 6})
    tooltips = [
        tooltip("arm", "arm"),
        tooltip("step", "step", ",.6~g"),
        tooltip("seconds", "seconds", ",.4~g"),
        tooltip("value", metric_name(metric), ".4f"),
        tooltip("se", "standard error", ".4f"),
        tooltip("queries", "queries", ",d"),
    ]
    y = quantitative("value", f"validation {metric_name(metric)}")
    over = "steps" if clock == "step" else "seconds"
    color = color_by_arm(arms)
    lines = line_layers(f"{clock}_{'auc' if metric == 'auc' else 'top'}", x, y, color, tooltips)
    return {
        **({"title": f"{metric_name(metric)} over {over}"} if titled else {}),
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [where_equal("metric", metric), where_valid(clock)],
        "layer": [error_band(x, y, color), *lines],
    }

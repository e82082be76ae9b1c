"""The picture of an estimate: the curves it was read from, and the effectiveness it is the maximum of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from negwise.errors import require
from negwise.report.figure import BLUE, GREY, ORANGE, RED, Figure, Rows, figure, inline
from negwise.theory.estimate import Estimate

_HEIGHT = 260


def estimate_figure(estimate: Estimate, name: str = "estimate") -> Figure:
    """Left, where there are curves: AUC over training with T marked. Right: v(K) with K*, the range as good, the
    90% interval and the limit 1 - lambda."""
    alt = require("altair", extra="plot")
    auc_rows = _auc_rows(estimate)
    v_rows = _v_rows(zip(estimate.curve.k, estimate.curve.v, strict=True))
    panels = [_effectiveness(alt, estimate)]
    if len(estimate.pilot.val_auc) > 1:
        panels.insert(0, _curves(alt, estimate, auc_rows))
    chart = alt.hconcat(*panels, spacing=36).resolve_scale(color="independent").properties(title=_title(estimate))
    return figure(name, chart, [*auc_rows, *v_rows])


def _title(estimate: Estimate) -> dict[str, Any]:
    notes = [f"lambda {estimate.lam:g}, label separation {estimate.label_separation:.2f}, verdict: {estimate.verdict}"]
    if estimate.basis == "forecast":
        notes.append("K* is a forecast: the training AUC still rose when the pilot stopped")
    if estimate.basis == "lower bound":
        notes.append("K* is a lower bound: the training AUC still rose when the pilot stopped")
    return {"text": estimate.headline(), "subtitle": notes}


def _auc_rows(estimate: Estimate) -> Rows:
    pilot = estimate.pilot
    sides = (("training", pilot.train_steps, pilot.train_auc), ("validation", pilot.val_steps, pilot.val_auc))
    return [
        {"curve": side, "step": step, "auc": value}
        for side, steps, aucs in sides
        if len(aucs) > 1
        for step, value in zip(steps, aucs, strict=True)
    ]


def _v_rows(points: Iterable[tuple[float, float]]) -> Rows:
    return [{"k": k, "effectiveness": v} for k, v in points]


def _curves(alt: Any, estimate: Estimate, rows: Rows) -> Any:
    color = alt.Color("curve:N", title=None, scale=alt.Scale(domain=["training", "validation"], range=[ORANGE, BLUE]))
    lines = (
        alt.Chart(inline(rows))
        .mark_line(point={"size": 18})
        .encode(
            x=alt.X("step:Q", title="training step"),
            y=alt.Y("auc:Q", title="AUC", scale=alt.Scale(zero=False)),
            color=color,
            tooltip=["curve:N", "step:Q", alt.Tooltip("auc:Q", format=".4f")],
        )
    )
    layers = [lines]
    if len(estimate.pilot.train_auc) == 1:
        flat = alt.Chart(inline([{"auc": estimate.pilot.train_auc[0], "curve": "training"}]))
        layers.append(flat.mark_rule(strokeDash=[4, 3], size=2).encode(y="auc:Q", color=color))
    note = "T, where training counts as converged, lies beyond the pilot"
    if estimate.horizon is not None and estimate.horizon <= estimate.pilot.val_steps[-1]:
        note = "T: where training counts as converged"
        mark = alt.Chart(inline([{"step": estimate.horizon, "text": f"T = {estimate.horizon:g}"}]))
        layers.append(mark.mark_rule(color=GREY, strokeDash=[3, 3]).encode(x="step:Q"))
        text = mark.mark_text(align="left", dx=5, dy=-6, color=GREY, baseline="bottom")
        layers.append(text.encode(x="step:Q", y=alt.value(_HEIGHT), text="text:N"))
    return alt.layer(*layers).properties(
        width=330,
        height=_HEIGHT,
        title={"text": "AUC of the pilot run", "subtitle": note},
    )


def _effectiveness(alt: Any, estimate: Estimate) -> Any:
    ks = estimate.curve.k
    # The range worth looking at: to where the curve has come down to its limit, not to the end of the search.
    last = min(ks[-1], max(30.0 * estimate.k, 100.0))
    x = alt.X(
        "k:Q",
        title="K, negatives per positive (log scale)",
        scale=alt.Scale(type="log", domain=[1, last], clamp=True, nice=False),
        axis=alt.Axis(values=[10**i for i in range(8)], format="~s"),
    )
    shown = [(k, v) for k, v in zip(ks, estimate.curve.v, strict=True) if k <= last]
    low, high = min(v for _, v in shown), max(v for _, v in shown)
    y = alt.Y(
        "effectiveness:Q",
        title="training effectiveness v",
        scale=alt.Scale(domain=[min(low, 1 - estimate.lam), high + 0.08 * (high - low)]),
    )
    left = estimate.k**2 > last  # K* stands in the right half: its neighbour's label goes to the left
    flat_end = estimate.flat[1] or last
    band = alt.Chart(inline([{"k": estimate.flat[0], "end": min(flat_end, last)}]))
    line = alt.Chart(inline(_v_rows(shown))).mark_line(color=BLUE, size=2.5)
    best = alt.Chart(
        inline([{"k": estimate.k, "effectiveness": estimate.margin + 1 - estimate.lam, "text": _best_text(estimate)}])
    )
    limit = alt.Chart(
        inline(
            [{"effectiveness": 1 - estimate.lam, "k": 1 if left else last, "text": "1 - lambda: every sample is easy"}]
        )
    )
    layers = [
        band.mark_rect(color=ORANGE, opacity=0.22).encode(x=x, x2="end:Q"),
        limit.mark_rule(color=GREY, strokeDash=[3, 3]).encode(y=y),
        limit.mark_text(align="left" if left else "right", dx=4 if left else -4, dy=-6, color=GREY, fontSize=10).encode(
            x=x, y=y, text="text:N"
        ),
        line.encode(x=x, y=y, tooltip=[alt.Tooltip("k:Q", format=".4g"), alt.Tooltip("effectiveness:Q", format=".4f")]),
        best.mark_rule(color=RED, size=1.5).encode(x=x),
        best.mark_point(color=RED, filled=True, size=60).encode(x=x, y=y),
        best.mark_text(color=RED, align="left", dx=7, dy=-9, fontWeight="bold").encode(x=x, y=y, text="text:N"),
    ]
    if estimate.interval is not None:
        bar = alt.Chart(inline([{"k": estimate.interval[0], "end": estimate.interval[1]}]))
        layers.append(bar.mark_rule(color=RED, size=4, opacity=0.6).encode(x=x, x2="end:Q", y=alt.value(_HEIGHT - 4)))
    title = {
        "text": "Effectiveness against K",
        "subtitle": "orange: as good (within 1%)"
        + ("" if estimate.interval is None else "; red bar: 90% interval of K*"),
    }
    return alt.layer(*layers).properties(width=380, height=_HEIGHT, title=title)


def _best_text(estimate: Estimate) -> str:
    return f"K* = {estimate.k:.3g}"

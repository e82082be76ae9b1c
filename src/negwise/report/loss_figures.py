"""The loss beside what it is worth: log(K + 1), the bound on mutual information (eq. 2), and its price in time."""

from __future__ import annotations

from collections.abc import Sequence

from negwise.report.figure import Figure, Row, Spec, short
from negwise.report.marks import HEIGHT, by_arm, hint, known, lines, longest_label, only, quantity, step_axis
from negwise.report.series import most_points, windows
from negwise.report.subject import Arm

RATE_POINTS = 40


def loss_and_bound(arms: Sequence[Arm]) -> Figure | None:
    """The loss with log(K+1), what guessing would cost, and beside it their difference, the MI bound."""
    rows: list[Row] = []
    points = most_points(arms) // 3
    for arm in arms:
        for window in windows(arm, points):
            for which, name in (("loss", "loss"), ("log(K+1)", "log_k1"), ("MI bound", "mi_bound")):
                if (value := window.values[name]) is not None:
                    rows.append({"arm": arm.name, "step": window.end, "which": which, "nats": short(value)})
    if not rows:
        return None
    dash: Spec = {
        "field": "which",
        "type": "nominal",
        "scale": {"domain": ["loss", "log(K+1)"], "range": [[1, 0], [4, 3]]},
        "legend": None,  # the title says it
    }
    hints = [hint("arm", "arm"), hint("which", "line"), hint("step", "step", ",.6~g"), hint("nats", "nats", ".4f")]
    two = {"filter": {"field": "which", "oneOf": ["loss", "log(K+1)"]}}
    y = quantity("nats", "nats", zero=True)
    color = by_arm(arms)
    left: Spec = {
        "title": "Loss (solid) and log(K+1) (dashed)",
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [two],
        "layer": lines("loss", step_axis(), y, color, hints, strokeDash=dash),
    }
    right: Spec = {
        "title": "MI bound: log(K+1) - loss",
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [only("which", "MI bound")],
        "layer": lines("bound", step_axis(), y, color, hints),
    }
    panels = (left, right) if any(row["which"] == "MI bound" for row in rows) else (left,)
    caption = (
        "Losses of different K cannot be compared: guessing costs log(K+1). What the model has learned is the distance "
        "between the two, a lower bound on the mutual information of query and positive."
    )
    return Figure("loss", "Loss and mutual information", caption, panels, rows, columns=len(panels))


def throughput(arms: Sequence[Arm]) -> Figure | None:
    """Steps a second over training, evaluations included; a mean over seeds."""
    rows: list[Row] = []
    for arm in arms:
        for window in windows(arm, min(RATE_POINTS, most_points(arms))):
            end = window.values["time"]
            if end is not None and window.began is not None and end > window.began:
                rate = (window.end - window.start) / (end - window.began)
                rows.append({"arm": arm.name, "step": window.end, "seconds": short(end), "steps_per_s": short(rate)})
    if not rows:
        return None
    hints = [
        hint("arm", "arm"),
        hint("step", "step", ",.6~g"),
        hint("steps_per_s", "steps/s", ".4~g"),
        hint("seconds", "seconds so far", ",.4~g"),
    ]
    panel: Spec = {
        "height": HEIGHT - 40,
        "usermeta": longest_label(arms),
        "transform": [known("steps_per_s")],
        "layer": lines("rate", step_axis(), quantity("steps_per_s", "steps a second", zero=True), by_arm(arms), hints),
    }
    caption = (
        "How fast each arm trained on this machine, its evaluations included. Other work on the machine shows here too."
    )
    return Figure("throughput", "Throughput", caption, (panel,), rows)

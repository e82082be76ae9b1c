"""Quality over training: over optimiser steps, and over the seconds they took."""

from __future__ import annotations

from collections.abc import Sequence

from negwise.report.figure import Figure, Row, Spec, short
from negwise.report.marks import HEIGHT, by_arm, hint, known, lines, longest_label, only, quantity, step_axis
from negwise.report.series import evaluations, most_points
from negwise.report.subject import Arm, Subject
from negwise.report.words import metric_name


def quality_over_time(subject: Subject) -> Figure | None:
    """Validation quality over steps and over seconds, the pilot's seconds charged to the arms that used it."""
    metrics, arms = subject.metrics[:2], subject.arms
    points = most_points(arms) // len(metrics)
    rows: list[Row] = [
        {
            "arm": arm.name,
            "metric": metric,
            "step": at.step,
            "seconds": None if at.seconds is None else short(at.seconds + arm.pilot_seconds),
            "value": short(at.score.value),
            "se": short(at.score.se),
            "seeds": at.score.n,
        }
        for metric in metrics
        for arm in arms
        for at in evaluations(arm, "val", metric, points)
    ]
    if not rows:
        return None
    clocks = ["step"] + (["seconds"] if any((row["seconds"] or 0) != 0 for row in rows) else [])
    shown = [metric for metric in metrics if any(row["metric"] == metric for row in rows)]
    panels = tuple(_time_panel(arms, metric, clock, len(clocks) > 1) for metric in shown for clock in clocks)
    caption = "Validation scores while training, a mean over seeds: over optimiser steps"
    if len(clocks) > 1:
        caption += ", and over seconds"
        charged = [arm for arm in arms if arm.pilot_seconds > 0]
        if charged:
            caption += ", where arms that rest on the pilot begin when it ended"
    return Figure(
        "quality_over_time", "Quality over training", f"{caption}.", panels, rows, columns=2 if len(panels) > 1 else 1
    )


def _time_panel(arms: Sequence[Arm], metric: str, clock: str, titled: bool) -> Spec:
    x = step_axis() if clock == "step" else quantity("seconds", "seconds", zero=True, axis={"tickCount": 6})
    hints = [
        hint("arm", "arm"),
        hint("step", "step", ",.6~g"),
        hint("seconds", "seconds", ",.4~g"),
        hint("value", metric_name(metric), ".4f"),
        hint("se", "standard error", ".4f"),
    ]
    y = quantity("value", f"validation {metric_name(metric)}")
    over = "steps" if clock == "step" else "seconds"
    return {
        **({"title": f"{metric_name(metric)} over {over}"} if titled else {}),
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "transform": [only("metric", metric), known(clock)],
        "layer": lines(f"{clock}_{'auc' if metric == 'auc' else 'top'}", x, y, by_arm(arms), hints),
    }

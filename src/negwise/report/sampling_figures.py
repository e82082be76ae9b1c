"""K over training, and what it made of the samples: good, bad and easy ones (eq. 5)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from negwise.report.figure import Figure, Row, Spec, short
from negwise.report.marks import HEIGHT, by_arm, hint, k_axis, known, lines, longest_label, only, step_axis
from negwise.report.series import evaluations, k_at, most_points, windows
from negwise.report.subject import Arm
from negwise.theory.effectiveness import sample_kinds
from negwise.theory.separation import separation

KINDS = ("good", "bad", "easy")
_COLORS = ["#009E73", "#D55E00", "#a9b4c2"]  # they mean the same in light and dark
_NEAREST = 1e-12  # an AUC of 0 or 1 has no finite separation; here every share is at its limit to the last digit
MOST_PANELS = 9


def k_over_time(arms: Sequence[Arm]) -> Figure | None:
    """K as the rule asked for it and K as it could be used, over steps."""
    rows: list[Row] = []
    points = most_points(arms) // 2
    for arm in arms:
        for window in windows(arm, points):
            for which, name in (("asked", "k"), ("used", "k_used")):
                if (k := window.values[name]) is not None and k > 0:
                    rows.append({"arm": arm.name, "step": window.end, "which": which, "k": short(k)})
    if not rows:
        return None
    dash: Spec = {
        "field": "which",
        "type": "nominal",
        "scale": {"domain": ["asked", "used"], "range": [[1, 0], [4, 3]]},
        "legend": None,  # the caption says it
    }
    hints = [hint("arm", "arm"), hint("which", "K"), hint("step", "step", ",.6~g"), hint("k", "value", ",.4~g")]
    ks = [float(str(row["k"])) for row in rows]
    domain = [min(1.0, *ks), max(2.0, *ks) * 1.15]
    panel = {
        "height": HEIGHT,
        "usermeta": longest_label(arms),
        "layer": lines("k", step_axis(), k_axis(domain=domain, title="K"), by_arm(arms), hints, strokeDash=dash),
    }
    caption = (
        "How many negatives each positive had. Solid: what the schedule asked for; dashed: what the data could give, "
        "on average. Where the two part, rows had fewer negatives than asked."
    )
    return Figure("k_over_time", "K over training", caption, (panel,), rows)


def sample_shares(arms: Sequence[Arm], label: float) -> Figure | None:
    """Shares of good, bad and easy samples over training, an arm a panel.

    Eq. 5 with mu = ``label`` from the estimate, mu'_t from the validation AUC at step t and K as used at that step.
    """
    rows = [row for arm in arms for row in share_rows(arm, label, most_points(arms) // len(KINDS))]
    have = {row["arm"] for row in rows}
    drawn = [arm for arm in arms if arm.name in have][:MOST_PANELS]
    if not drawn:
        return None
    panels = tuple(_shares_panel(arm) for arm in drawn)
    caption = (
        "Good samples teach the model something true, bad ones something false, easy ones nothing. More negatives turn "
        "easy samples into good ones early on, and into bad ones later. Eq. 5 of the paper, at each evaluation."
    )
    names = {arm.name for arm in drawn}
    shown = [row for row in rows if row["arm"] in names]
    title = "Good, bad and easy samples over training"
    return Figure("sample_shares", title, caption, panels, shown, columns=min(len(panels), 3))


def share_rows(arm: Arm, label: float, points: int) -> list[Row]:
    """A row for each evaluation and kind."""
    course = windows(arm, 10**9)
    found: list[Row] = []
    for at in evaluations(arm, "val", "auc", points):
        k = k_at(course, at.step)
        if k is None or at.score.value is None:
            continue
        model = separation(np.clip(at.score.value, _NEAREST, 1 - _NEAREST))
        shares = sample_kinds(label, model, k)
        for kind, share in zip(KINDS, shares, strict=True):
            row: Row = {"arm": arm.name, "step": at.step, "kind": kind, "share": short(float(share))}
            found.append(row | {"k": short(k), "val_auc": short(at.score.value)})
    return found


def _shares_panel(arm: Arm) -> Spec:
    color: Spec = {
        "field": "kind",
        "type": "nominal",
        "scale": {"domain": list(KINDS), "range": _COLORS},
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
    order = {"field": "place", "type": "quantitative"}  # good at the bottom, where it can be read off; bad on top
    hints = [
        hint("kind", "samples"),
        hint("share", "share", ".1%"),
        hint("step", "step", ",.6~g"),
        hint("k", "K", ",.4~g"),
        hint("val_auc", "validation AUC", ".4f"),
    ]
    place = {"x": step_axis(), "y": y, "color": color, "order": order}
    return {
        "title": f"K = {arm.name}" if arm.fixed else arm.name,
        "height": HEIGHT - 40,
        "usermeta": {"longestLabel": max(map(len, KINDS))},
        "transform": [
            only("arm", arm.name),
            known("share"),
            {"calculate": "indexof(['good', 'easy', 'bad'], datum.kind)", "as": "place"},
        ],
        "layer": [
            {"mark": {"type": "area", "opacity": 0.85}, "encoding": place},
            {"mark": {"type": "point", "size": 220, "opacity": 0}, "encoding": {**place, "tooltip": hints}},
        ],
    }

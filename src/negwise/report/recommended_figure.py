"""What the models recommend: how much of the catalogue, and how popular it is."""

from __future__ import annotations

from collections.abc import Sequence

from negwise.report.figure import Figure, Row, Spec, short
from negwise.report.marks import hint, known, quantity
from negwise.report.subject import Arm


def recommended(arms: Sequence[Arm]) -> Figure | None:
    """Item coverage and popularity of what each arm recommends, a mean over seeds with the seeds as dots."""
    rows: list[Row] = [
        {
            "arm": arm.name,
            "seed": trial.seed,
            "coverage": short(trial.recommended.coverage),
            "popularity": short(trial.recommended.popularity),
            "positives_popularity": short(trial.recommended.positives_popularity),
        }
        for arm in arms
        for trial in arm.done
        if trial.recommended is not None
    ]
    if not rows:
        return None
    n = next(t.recommended.n for arm in arms for t in arm.done if t.recommended is not None)
    top = f"top {n}"
    names = [arm.name for arm in arms if any(row["arm"] == arm.name for row in rows)]
    fields = [
        ("coverage", "share of the catalogue", ".1%", "Coverage"),
        ("popularity", "training positives of an item", ",.4~g", "Popularity"),
    ]
    here = [entry for entry in fields if any(row[entry[0]] is not None for row in rows)]
    panels = tuple(_recommended_panel(names, *entry, rows) for entry in here)
    caption = f"What the {top} of each test query hold: how much of the catalogue is ever recommended"
    if "popularity" in [field for field, *_ in here]:
        caption += (
            ", and how popular those items are. The dashed line is the popularity of the true positives: beyond it, "
            "the model plays safe"
        )
    caption += ". Ticks are single seeds."
    return Figure("recommended", "What is recommended", caption, panels, rows, columns=len(panels)) if panels else None


def _recommended_panel(names: list[str], field: str, what: str, form: str, title: str, rows: Sequence[Row]) -> Spec:
    y: Spec = {
        "field": "arm",
        "type": "nominal",
        "sort": names,
        "title": None,
        "axis": {"grid": False, "labelLimit": 120},
    }
    x = quantity(field, what, zero=True, axis={"format": "%" if form.endswith("%") else "~s", "tickCount": 5})
    arm, mean = hint("arm", "arm"), {"aggregate": "mean"}
    means = {"x": {**x, **mean}, "y": y, "tooltip": [arm, {**hint(field, f"mean {title.lower()}", form), **mean}]}
    seeds = {"x": x, "y": y, "tooltip": [arm, hint("seed", "seed"), hint(field, title.lower(), form)]}
    bar = {"type": "bar", "style": "bar", "cornerRadiusEnd": 3, "height": {"band": 0.62}}
    layers: list[Spec] = [
        {"mark": bar, "encoding": means},
        {"mark": {"type": "tick", "thickness": 2, "opacity": 0.55}, "encoding": seeds},
    ]
    truth = [row["positives_popularity"] for row in rows if row["positives_popularity"] is not None]
    if field == "popularity" and truth:
        shown = {**quantity("positives_popularity", what, zero=True), "aggregate": "mean"}
        hints = [{**hint("positives_popularity", "of the true positives", form), "aggregate": "mean"}]
        mark = {"type": "rule", "style": "guide", "strokeWidth": 2}
        layers.append({"mark": mark, "encoding": {"x": shown, "tooltip": hints}})
    return {"title": title, "height": 34 * len(names), "transform": [known(field)], "layer": layers}

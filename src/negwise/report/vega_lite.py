"""Parts of Vega-Lite panels: axes, colours by arm, lines with tooltips, filters, text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from negwise.report.figure import Spec
from negwise.report.style import PALETTE

if TYPE_CHECKING:
    from negwise.report.report_data import ArmRuns

HEIGHT = 250


def quantitative(field: str, title: str, *, zero: bool = False, **more: Any) -> Spec:
    """The encoding of a number on an axis."""
    scale = more.pop("scale", {})
    if scale.get("type") != "log":
        scale = {"zero": zero, **scale}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


def step_axis(title: str = "training step") -> Spec:
    """The training step on an axis that starts at 0."""
    return quantitative("step", title, zero=True, axis={"format": "~s", "tickCount": 6}, scale={"nice": False})


def k_axis(
    field: str = "k", *, domain: Sequence[float] | None = None, title: str = "K, negatives per positive"
) -> Spec:
    """K on a log scale, with ticks at 1, 2, 5, 10, ... over short ranges and at powers of ten over long ones."""
    low, high = (1.0, 1e7) if domain is None else (domain[0], domain[1])
    leading = (1, 2, 5) if high / low < 1e3 else (1,)
    ticks = [digit * 10**power for power in range(-1, 8) for digit in leading if low <= digit * 10**power <= high]
    scale: Spec = {"type": "log", "nice": False}
    if domain is not None:
        scale |= {"domain": list(domain), "clamp": True}
    return quantitative(field, f"{title} (log scale)", scale=scale, axis={"values": ticks, "format": "~s"})


def color_by_arm(arms: Sequence[ArmRuns], field: str = "arm") -> Spec:
    """A colour for each arm, the same in every figure of a page; shades of one scale for many arms."""
    names = [arm.name for arm in arms]
    kind = "nominal" if len(names) <= len(PALETTE) else "ordinal"
    legend = None if len(names) == 1 else {"title": None}
    return {"field": field, "type": kind, "sort": names, "scale": {"domain": names}, "legend": legend}


def longest_label(arms: Sequence[ArmRuns]) -> Spec:
    """The length of the longest legend entry: the page needs it to know how many fit in a row."""
    return {"longestLabel": max((len(arm.name) for arm in arms), default=1)}


def tooltip(field: str, title: str, form: str = "") -> Spec:
    """One line of a tooltip."""
    if not form:
        return {"field": field, "type": "nominal", "title": title}
    return {"field": field, "type": "quantitative", "title": title, "format": form}


def line_layers(name: str, x: Spec, y: Spec, color: Spec, tooltips: Sequence[Spec], **more: Any) -> list[Spec]:
    """Two layers: the lines, and the point nearest to the pointer. ``name`` must be unique in the figure."""
    where = {"x": x, "y": y, "color": color}
    mark = {"type": "line", "strokeWidth": 2, "strokeJoin": "round"}
    return [{"mark": mark, "encoding": where | more}, nearest_point_layer(name, where, tooltips)]


def error_band(x: Spec, y: Spec, color: Spec) -> Spec:
    """A band from the field ``low`` to the field ``high`` of each arm, where both are known."""
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": color}
    mark = {"type": "area", "opacity": 0.16}
    return {"transform": [where_valid("low")], "mark": mark, "encoding": {"x": x, **ends}}


def nearest_point_layer(name: str, where: Spec, tooltips: Sequence[Spec]) -> Spec:
    """A layer that shows the point nearest to the pointer, with its tooltip."""
    select = {"type": "point", "on": "pointerover", "nearest": True, "clear": "pointerout"}
    shown = {"condition": {"param": f"near_{name}", "empty": False, "value": 1}, "value": 0}
    return {
        "params": [{"name": f"near_{name}", "select": select}],
        "mark": {"type": "point", "filled": True, "size": 70},
        "encoding": {**where, "opacity": shown, "tooltip": list(tooltips)},
    }


def where_equal(field: str, value: str) -> Spec:
    """A filter for rows by equality: text from data is never read as an expression."""
    return {"filter": {"field": field, "equal": value}}


def where_valid(field: str) -> Spec:
    """A filter for rows in which the field is a number."""
    return {"filter": {"field": field, "valid": True}}


def text_mark(text: str, *, style: str = "guide-text", **mark: Any) -> Spec:
    """A layer with the text ``text``."""
    return {"mark": {"type": "text", "style": style, **mark}, "encoding": {"text": {"value": text}}}

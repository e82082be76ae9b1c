"""The figures of the evidence, each declared once, from records alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evidence.analysis import LAMS, Analysis
from negwise.report import (
    HEIGHT,
    Figure,
    Row,
    Spec,
    k_axis,
    metric_name,
    quantitative,
    round_digits,
    step_axis,
    text_mark,
    tooltip,
    where_equal,
)


def three_panels(analysis: Analysis) -> Figure:
    """The paper's figure of a task: the pilot, v(K), and measured quality (AUC and the top-n metric)."""
    rows = [*_pilot_rows(analysis), *_v_rows(analysis), *_quality_rows(analysis)]
    ks = analysis.fixed
    domain = [min(ks) / 1.2, max(ks) * 1.2]
    panels = (
        _curves(f"The pilot, K = 1, {len(analysis.record['seeds'])} seeds", "auc", "AUC", "split"),
        _effectiveness(analysis, domain),
        *(_quality(analysis, metric, domain) for metric in ("auc", analysis.top_n)),
    )
    return Figure(
        analysis.name,
        analysis.record["title"],
        f"{analysis.record['steps']:,} steps. Dots are seeds, lines their means with standard errors; dashed: K* at "
        f"lambda 0.9 ({analysis.k_star}).",
        panels,
        rows,
        columns=2,
        resolve={"scale": {"color": "independent"}, "legend": {"color": "independent"}},
    )


def schedules(analysis: Analysis) -> Figure:
    """Validation AUC and the top-n metric of the schedules against steps."""
    rules = compared(analysis)
    return Figure(
        f"{analysis.name}-schedules",
        f"{analysis.record['title']}: schedules",
        "ans: rises to its peak by 10% of the steps, then falls to 1. warm: rises by 10% and holds.",
        tuple(curve_panel(analysis, metric, step_axis(), rules) for metric in ("auc", analysis.top_n)),
        curve_rows(analysis, rules),
        columns=2,
    )


def compared(analysis: Analysis) -> list[str]:
    """K = 1, and K*, the validation-best K and their schedules."""
    peaks = dict.fromkeys((analysis.k_star, analysis.k_best))
    return list(dict.fromkeys(("1", *(f"{kind}{peak}" for peak in peaks for kind in ("", "ans:", "warm:")))))


def curve_rows(analysis: Analysis, rules: Sequence[str]) -> list[Row]:
    """Validation quality of these arms at each evaluation after the start, mean of seeds."""
    rows: list[Row] = []
    for arm in analysis.record["arms"]:
        if arm["rule"] in rules:
            curves = [run["curve"]["val"] for run in arm["seeds"]]
            auc, first = (np.mean([curve[name] for curve in curves], axis=0) for name in ("auc", analysis.top_n))
            rows += [
                {"arm": arm["rule"], "step": step, "auc": round_digits(one), "top": round_digits(other)}
                for step, one, other in zip(curves[0]["step"], auc, first, strict=True)
                if step > 0
            ]
    return rows


def curve_panel(analysis: Analysis, metric: str, x: Spec, rules: Sequence[str]) -> Spec:
    """The rows of `curve_rows` as lines."""
    names = list(rules)
    color: Spec = {
        "field": "arm",
        "type": "nominal",
        "sort": names,
        "scale": {"domain": names},
        "legend": {"title": "K"},
    }
    y = quantitative("top" if metric == analysis.top_n else "auc", "validation, mean of seeds")
    return {
        "title": metric_name(metric),
        "height": HEIGHT,
        "mark": {"type": "line", "point": True, "strokeWidth": 1.5},
        "encoding": {"x": x, "y": y, "color": color},
    }


def scores(analyses: Sequence[Analysis]) -> Figure:
    """Standardised scores of the pilot's model against the two Gaussians."""
    rows: list[Row] = []
    for analysis in analyses:
        found = analysis.record["scores"]
        at = found["low"] + found["width"] * (np.arange(len(found["positives"])) + 0.5)
        for side, mean in (("negatives", 0.0), ("positives", found["positive_mean"])):
            total = sum(found[side]) * found["width"]
            gauss = np.exp(-0.5 * (at - mean) ** 2) / np.sqrt(2 * np.pi)
            rows += [
                {
                    "task": analysis.name,
                    "scores": side,
                    "score": x,
                    "density": round_digits(n / total),
                    "gaussian": round_digits(g),
                }
                for x, n, g in zip(at.tolist(), found[side], gauss.tolist(), strict=True)
            ]
    x = quantitative("score", "score, in standard deviations of the negatives")
    panels = tuple(_score_panel(analysis.name, x) for analysis in analyses)
    return Figure(
        "scores",
        "Scores of the K = 1 model on validation queries, and the Gaussians of the framework",
        "Bars: scores, centred and scaled by each query's own negatives. Lines: N(0, 1), and N(mean of positives, 1).",
        panels,
        rows,
        columns=2 if len(panels) % 3 == 1 else 3,
    )


def recommended(analyses: Sequence[Analysis]) -> Figure:
    """How much of the catalogue the first ten places show, and how popular it is, against K."""
    rows: list[Row] = []
    for analysis in analyses:
        for arm in analysis.record["arms"]:
            if not arm["rule"].isdigit():
                continue
            for name in ("coverage", "popularity"):
                values = [run["recommended"][name] for run in arm["seeds"] if run["recommended"]]
                if values and None not in values:
                    right = [run["recommended"]["positives_popularity"] or np.nan for run in arm["seeds"]]
                    share = np.array(values) / (np.array(right) if name == "popularity" else 1.0)
                    rows.append(
                        {"task": analysis.name, "what": name, "k": arm["k"], "value": round_digits(float(share.mean()))}
                    )
    color: Spec = {"field": "task", "type": "nominal", "legend": {"title": None}}
    titles = {
        "coverage": "share of the candidates in anyone's first ten",
        "popularity": "popularity of the first ten, over that of the true items",
    }
    panels = tuple(
        {
            "title": title,
            "height": HEIGHT,
            "transform": [where_equal("what", name)],
            "mark": {"type": "line", "point": True},
            "encoding": {"x": k_axis(), "y": quantitative("value", name, zero=True), "color": color},
        }
        for name, title in titles.items()
    )
    caption = "Test split, mean of seeds. Documents have no popularity: each is trained on once."
    return Figure("recommended", "Coverage and popularity against K", caption, panels, rows, columns=2)


def _pilot_rows(analysis: Analysis) -> list[Row]:
    arm = next(arm for arm in analysis.record["arms"] if arm["rule"] == "1")
    return [
        {"of": "pilot", "seed": run["seed"], "split": split, "step": step, "auc": round_digits(auc)}
        for run in arm["seeds"]
        for split, curve in run["curve"].items()
        for step, auc in zip(curve["step"], curve["auc"], strict=True)
    ]


def _v_rows(analysis: Analysis) -> list[Row]:
    rows: list[Row] = []
    for lam in LAMS:
        ks, vs = analysis.curve(lam)
        kept = np.unique(np.geomspace(1, len(ks), 60).astype(int)) - 1
        rows += [{"of": "v", "lam": f"{lam:g}", "k": round_digits(ks[i]), "v": round_digits(vs[i])} for i in kept]
    return rows


def _quality_rows(analysis: Analysis) -> list[Row]:
    rows: list[Row] = []
    for metric in ("auc", analysis.top_n):
        for k in analysis.fixed:
            found = analysis.measured[metric][str(k)]
            mean, error = found.mean, found.error
            row: Row = {"metric": metric, "k": k}
            rows += [row | {"of": "seed", "value": round_digits(value)} for value in found.seeds.tolist()]
            rows.append(
                row
                | {
                    "of": "mean",
                    "value": round_digits(mean),
                    "low": round_digits(mean - error),
                    "high": round_digits(mean + error),
                }
            )
    return rows


def _curves(title: str, field: str, axis: str, by: str) -> Spec:
    color: Spec = {"field": by, "type": "nominal", "legend": {"title": None}}
    return {
        "title": title,
        "height": HEIGHT,
        "transform": [where_equal("of", "pilot")],
        "mark": {"type": "line", "strokeWidth": 1.2, "opacity": 0.8},
        "encoding": {"x": step_axis(), "y": quantitative(field, axis), "color": color, "detail": {"field": "seed"}},
    }


def _effectiveness(analysis: Analysis, domain: list[float]) -> Spec:
    x = k_axis(domain=domain)
    color: Spec = {"field": "lam", "type": "ordinal", "legend": {"title": "lambda"}}
    return {
        "title": "Effectiveness v(K)",
        "height": HEIGHT,
        "layer": [
            {
                "transform": [where_equal("of", "v")],
                "mark": {"type": "line", "strokeWidth": 1.5, "clip": True},
                "encoding": {"x": x, "y": quantitative("v", "v, mean over training"), "color": color},
            },
            *_star(analysis, x),
        ],
    }


def _star(analysis: Analysis, x: Spec) -> list[Spec]:
    data = {"values": [{"k": analysis.k_star}]}
    label = text_mark("K*", dx=9, dy=8, align="left")
    label["encoding"] |= {"x": x, "y": {"value": 0}}
    return [{"data": data, "mark": {"type": "rule", "style": "guide"}, "encoding": {"x": x}}, {"data": data, **label}]


def _quality(analysis: Analysis, metric: str, domain: list[float]) -> Spec:
    x, y = k_axis(domain=domain), quantitative("value", f"test {metric_name(metric)}")
    means = [where_equal("metric", metric), where_equal("of", "mean")]
    place: Spec = {"x": x, "y": y}
    ends: Any = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    dots = {"type": "point", "filled": True, "style": "seed"}
    hints = [tooltip("k", "K", ",.4~g"), tooltip("value", metric_name(metric), ".4f")]
    return {
        "title": f"Measured {metric_name(metric)}",
        "height": HEIGHT,
        "layer": [
            *_star(analysis, x),
            {"transform": [where_equal("metric", metric), where_equal("of", "seed")], "mark": dots, "encoding": place},
            {"transform": means, "mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends},
            {"transform": means, "mark": {"type": "line", "point": True}, "encoding": place | {"tooltip": hints}},
        ],
    }


def _score_panel(task: str, x: Spec) -> Spec:
    color: Spec = {"field": "scores", "type": "nominal", "legend": {"title": None, "orient": "bottom"}}
    bars = {"type": "area", "interpolate": "step", "opacity": 0.35}
    return {
        "title": task,
        "height": 200,
        "transform": [where_equal("task", task)],
        "layer": [
            {
                "mark": bars,
                "encoding": {
                    "x": x,
                    "y": {**quantitative("density", "density", zero=True), "stack": None},
                    "color": color,
                },
            },
            {
                "mark": {"type": "line", "strokeWidth": 1.5},
                "encoding": {
                    "x": x,
                    "y": {**quantitative("gaussian", "density", zero=True), "stack": None},
                    "color": color,
                },
            },
        ],
    }

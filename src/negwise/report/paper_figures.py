"""The paper's figures that need no model, from the formulas. A caption says which printed numbers do not follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from negwise.errors import require
from negwise.report.figure import Figure, Row, Spec
from negwise.report.style import BLUE, GREEN, GREY, ORANGE, RED
from negwise.report.vega_lite import quantitative, where_equal
from negwise.schedule import AnsK
from negwise.theory.effectiveness import effectiveness, sample_kinds
from negwise.theory.estimate import Estimate
from negwise.theory.optimal_k import optimal_k
from negwise.theory.separation import Floats, auc
from negwise.theory.verdict import LEAST_MARGIN

STAGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LAM = 0.9  # the paper's
LAMS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
KINDS = {"effectiveness v": BLUE, "good": GREEN, "bad": RED, "easy": GREY}


@dataclass(frozen=True)
class PaperTask:
    """A task of the paper: its label separation, and the K that the paper prints for it."""

    name: str
    separation: float
    printed_k: int

    @property
    def auc(self) -> float:
        return float(auc(self.separation))


# The paper prints the AUC 0.75, 0.95 and 0.998, and 4.5 as the separation of the third. An AUC of 0.998 is a
# separation of 4.07, and 4.5 is an AUC of 0.99927, so that task is here twice.
TASKS = (
    PaperTask("News recommendation", 1.0, 4),
    PaperTask("Item recommendation", 2.4, 20),
    PaperTask("Title-body matching", 4.07, 180),
    PaperTask("Title-body matching, as printed", 4.5, 180),
)


def reproduce_theory(out: Path, progress: Callable[[str, int, int], None] | None = None) -> list[Path]:
    """Write every figure to ``out`` as PNG, SVG and CSV; ``progress(name, done, total)`` is called before each."""
    require("vl_convert", extra="plot")
    makers: list[Callable[[], Figure]] = [
        score_distributions,
        optimal_k_against_separation,
        *(lambda task=task: training_stages(task) for task in TASKS),
        effectiveness_by_lambda,
        auc_against_separation,
        ans_curve,
    ]
    paths: list[Path] = []
    for done, make in enumerate(makers):
        made = make()
        if progress is not None:
            progress(made.name, done, len(makers))
        paths += made.save_all(out)
    return paths


def score_distributions() -> Figure:
    """Scores of positives and negatives under the labels, and under a model with half of their separation."""
    separations = {"labels: separation 2.4 (AUC 0.955)": 2.4, "model half-way: separation 1.2 (AUC 0.802)": 1.2}
    rows: list[Row] = [
        {
            "scores": side,
            "panel": panel,
            "score": float(score),
            "density": math.exp(-0.5 * (score - mean) ** 2) / math.sqrt(2 * math.pi),
        }
        for panel, mu in separations.items()
        for side, mean in (("negatives", 0.0), ("positives", mu))
        for score in np.linspace(-4, 7, 221)
    ]
    x = quantitative("score", "score (standard deviations)")
    y = {**quantitative("density", "density", zero=True), "stack": None}
    color = _color("scores", {"negatives": GREY, "positives": BLUE})
    panels = tuple(
        {
            "title": _panel_title(panel),
            "height": 240,
            "transform": [where_equal("panel", panel)],
            "mark": {"type": "area", "opacity": 0.35, "line": True},
            "encoding": {"x": x, "y": y, "color": color},
        }
        for panel in separations
    )
    caption = "The overlap is label noise on the left, model error on the right."
    return Figure("score-distributions", "Scores of positives and negatives", caption, panels, rows, columns=2)


def optimal_k_against_separation() -> Figure:
    """K* on the simulated curve for separations from 0.2 to 5, with the paper's tasks."""
    rows: list[Row] = []
    for mu in np.round(np.arange(0.2, 5.001, 0.05), 2):
        found = optimal_k(float(auc(mu)))
        numbers: Row = {"separation": float(mu), "auc": float(auc(mu)), "k": found.k, "margin": found.margin}
        rows.append({**numbers, "verdict": found.verdict, "flat_low": found.flat[0], "flat_high": found.flat[1]})
    x = quantitative("separation", "label separation", zero=True)
    y = quantitative(
        "k",
        "optimal K (log scale)",
        scale={"type": "log", "domain": [1, 1e5], "clamp": True},
        axis={"values": [1, 10, 100, 1000, 10000], "format": "~s"},
    )
    has_range = [where_equal("verdict", "ok"), {"filter": {"field": "flat_high", "valid": True}}]
    printed = {"values": [{"separation": task.separation, "k": task.printed_k} for task in TASKS]}
    color = {**_color("verdict", {"ok": BLUE, "vacuous": GREY}), "legend": {"title": "verdict"}}
    cross = {"type": "point", "color": RED, "size": 70, "shape": "cross", "filled": True}
    panel: Spec = {
        "height": 320,
        "layer": [
            {
                "transform": has_range,
                "mark": {"type": "area", "color": ORANGE, "opacity": 0.22},
                "encoding": {"x": x, "y": {**y, "field": "flat_low"}, "y2": {"field": "flat_high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2.5}, "encoding": {"x": x, "y": y, "color": color}},
            {"data": printed, "mark": cross, "encoding": {"x": x, "y": y}},
            {
                "data": printed,
                "mark": {"type": "text", "color": RED, "dy": 16, "dx": 4},
                "encoding": {"x": x, "y": y, "text": {"field": "k", "type": "quantitative"}},
            },
        ],
    }
    caption = (
        "Blue: K*; orange: as good (within 1%); grey: vacuous, the maximum gains less than 0.01 over K = infinity. "
        "Red: the K that the paper prints. 180 does not follow from its formula: 4.07 gives 936, 4.5 gives 3,713."
    )
    title = "Optimal K against label separation (lambda 0.9, simulated training)"
    return Figure("optimal-k", title, caption, (panel,), rows)


def training_stages(task: PaperTask) -> Figure:
    """v and the shares of good, bad and easy samples against K, at six stages of training."""
    ks = np.geomspace(1, 10 * max(task.printed_k, optimal_k(task.auc).k), 121)
    titles = {stage: _stage_title(task, stage) for stage in STAGES}
    rows: list[Row] = [
        {"stage": stage, "panel": title, "k": float(k), "kind": kind, "value": float(value)}
        for stage, title in titles.items()
        for kind, values in zip(KINDS, _stage_values(task.separation, stage * task.separation, ks), strict=True)
        for k, value in zip(ks, values, strict=True)
    ]
    dashes = {"condition": {"test": {"field": "kind", "equal": "effectiveness v"}, "value": [1, 0]}, "value": [5, 3]}
    encoding = {
        "x": _log_k(float(ks[-1])),
        "y": quantitative("value", "share of samples, or v", scale={"domain": [0, 1]}),
        "color": _color("kind", KINDS),
        "strokeDash": dashes,
    }
    panels = tuple(
        {
            "title": _panel_title(title),
            "height": 190,
            "transform": [where_equal("panel", title)],
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": encoding,
        }
        for title in titles.values()
    )
    caption = (
        "Each panel: model separation over label separation, and where v peaks in K (lambda 0.9). At the last stage "
        "good and bad samples coincide, and no K gains over 1 - lambda."
    )
    title = f"Training stages: {task.name}, label separation {task.separation:g} (AUC {task.auc:.4g})"
    return Figure(f"stages-{task.separation:g}", title, caption, panels, rows, columns=3)


def effectiveness_by_lambda() -> Figure:
    """v(K) over a whole simulated training for seven lambdas, K*(0.9) dashed."""
    rows: list[Row] = []
    panels: list[Spec] = []
    for task in TASKS:
        estimates = {lam: optimal_k(task.auc, lam=lam, max_k=1e5) for lam in LAMS}
        best = estimates[LAM].k
        name = f"{task.name}: separation {task.separation:g}; K* {_format_k(best)}, printed {task.printed_k}"
        panels.append(_lambda_panel(name, best))
        rows += [row for lam, estimate in estimates.items() for row in _lambda_rows(name, lam, estimate)]
    caption = "Dashed: K* at lambda 0.9. Every curve tends to 1 - lambda as K grows, whatever the data."
    title = "Effectiveness against K for seven lambdas (simulated training)"
    return Figure("effectiveness-by-lambda", title, caption, tuple(panels), rows, columns=2)


def auc_against_separation() -> Figure:
    """The closed form of eq. 7."""
    rows: list[Row] = [{"separation": float(mu), "auc": float(auc(mu))} for mu in np.linspace(0, 5, 101)]
    x = quantitative("separation", "separation", zero=True, axis={"tickCount": 10})
    y = quantitative("auc", "AUC", scale={"domain": [0.5, 1.0]})
    points = [{"separation": task.separation, "auc": task.auc} for task in TASKS]
    labels: list[Spec] = [
        {
            "data": {"values": [point]},
            "mark": {"type": "text", "color": RED, "align": "left", "dx": 4, "dy": dy},
            "encoding": {"x": x, "y": y, "text": {"value": f"{point['separation']:g}: {point['auc']:.5f}"}},
        }
        # The last two points are close to each other, so their labels are on two lines.
        for point, dy in zip(points, (14, 14, 14, 30), strict=True)
    ]
    panel: Spec = {
        "height": 280,
        "layer": [
            {"mark": {"type": "line", "color": BLUE, "strokeWidth": 2.5}, "encoding": {"x": x, "y": y}},
            {
                "data": {"values": points},
                "mark": {"type": "point", "color": RED, "filled": True, "size": 60},
                "encoding": {"x": x, "y": y},
            },
            *labels,
        ],
    }
    caption = (
        "AUC = Phi(separation / sqrt 2), in closed form. The paper's pair, AUC 0.998 with 4.5, is not on it: 0.998 is "
        "4.07, and 4.5 is 0.99927."
    )
    return Figure("auc-separation", "AUC against separation", caption, (panel,), rows)


def ans_curve() -> Figure:
    """K over training under ANS."""
    rules = {f"{task.name}: peak {task.printed_k}": AnsK(peak=task.printed_k) for task in TASKS[:3]}
    rows: list[Row] = [
        {"rule": name, "fraction": float(fraction), "k": rule(float(fraction))}
        for name, rule in rules.items()
        for fraction in np.linspace(0, 1, 201)
    ]
    x = quantitative("fraction", "share of training steps", axis={"format": "%", "tickCount": 5})
    panels = tuple(
        {
            "title": _panel_title(name),
            "height": 180,
            "transform": [where_equal("rule", name)],
            "mark": {"type": "line", "strokeWidth": 2.5, "color": BLUE},
            "encoding": {"x": x, "y": quantitative("k", "K", zero=True)},
        }
        for name in rules
    )
    caption = (
        "From 1 to the peak at 10% of the steps, then down to 1. The decline does not follow from the formula: the "
        "stage-wise optimum rises over most of training."
    )
    return Figure("ans", "Adaptive negative sampling (ANS): K over training", caption, panels, rows, columns=3)


def _stage_values(label: float, model: float, ks: Floats) -> Sequence[Floats]:
    return (effectiveness(label, model, ks, LAM), *sample_kinds(label, model, ks))


def _stage_title(task: PaperTask, stage: float) -> str:
    """The stage, and the K at which v is highest."""
    ks = np.geomspace(1, 1e6, 2001)
    v = effectiveness(task.separation, stage * task.separation, ks, LAM)
    top = int(np.argmax(v))
    # Without a gain over the limit, the place of the maximum means nothing.
    best = f"best K {_format_k(ks[top])}" if v[top] - (1 - LAM) >= LEAST_MARGIN else "no K is better"
    return f"{stage:g} of the way: {best}"


def _lambda_rows(panel: str, lam: float, estimate: Estimate) -> list[Row]:
    curve = zip(estimate.curve.k[::2], estimate.curve.v[::2], strict=True)
    return [{"panel": panel, "lambda": f"{lam:g}", "k": k, "effectiveness": v} for k, v in curve]


def _lambda_panel(name: str, best: float) -> Spec:
    x = _log_k(1e5)
    y = quantitative("effectiveness", "mean effectiveness v", scale={"domain": [0, 0.5]})
    names = [f"{lam:g}" for lam in LAMS]
    color = {"field": "lambda", "type": "nominal", "sort": names, "scale": {"scheme": "viridis"}, "title": "lambda"}
    return {
        "title": _panel_title(*name.split("; ")),
        "height": 200,
        "layer": [
            {
                "transform": [where_equal("panel", name)],
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {"x": x, "y": y, "color": color},
            },
            {
                "data": {"values": [{"k": best}]},
                "mark": {"type": "rule", "color": RED, "strokeDash": [5, 3], "strokeWidth": 1.5},
                "encoding": {"x": x},
            },
        ],
    }


def _log_k(last: float) -> Spec:
    scale = {"type": "log", "domain": [1, last], "nice": False}
    return quantitative("k", "K (log scale)", scale=scale, axis={"values": [10**i for i in range(7)], "format": "~s"})


def _color(field: str, colors: dict[str, str]) -> Spec:
    """A colour for each value of ``field``, in this order."""
    scale = {"domain": list(colors), "range": list(colors.values())}
    return {"field": field, "type": "nominal", "sort": list(colors), "scale": scale, "legend": {"title": None}}


def _panel_title(*lines: str) -> Spec:
    return {"text": list(lines), "fontSize": 12, "fontWeight": "normal"}


def _format_k(k: float) -> str:
    return f"{k:,.0f}" if k >= 100 else f"{k:.3g}"

"""The paper's model-free figures, remade from the formulas; where a printed number does not follow, they say so."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from negwise.errors import require
from negwise.report.figure import BLUE, GREEN, GREY, ORANGE, RED, Figure, Rows, figure, inline, save_all
from negwise.schedule import AnsK
from negwise.theory.effectiveness import effectiveness, sample_kinds
from negwise.theory.optimal_k import optimal_k
from negwise.theory.separation import Floats, auc
from negwise.theory.verdict import LEAST_MARGIN

STAGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LAM = 0.9  # the paper's
LAMS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True)
class Task:
    """A task of the paper: its label separation, and the K that the paper prints for it."""

    name: str
    separation: float
    printed_k: int
    printed: str

    @property
    def title(self) -> str:
        return f"{self.name}, label separation {self.separation:g} (AUC {float(auc(self.separation)):.4g})"


TASKS = (
    Task("News recommendation", 1.0, 4, "the paper prints AUC 0.75, separation 1, K = 4"),
    Task("Item recommendation", 2.4, 20, "the paper prints AUC 0.95, separation 2.4, K = 20"),
    Task("Title-body matching", 4.07, 180, "the paper prints AUC 0.998 (which is separation 4.07), K = 180"),
    Task(
        "Title-body matching, as printed", 4.5, 180, "the paper prints separation 4.5 (which is AUC 0.99927), K = 180"
    ),
)


def reproduce_theory(out: Path, progress: Callable[[str, int, int], None] | None = None) -> list[Path]:
    """Make every figure in ``out`` as PNG, SVG and CSV; ``progress(name, done, total)`` hears of each."""
    require("altair", extra="plot")
    makers: list[Callable[[], Figure]] = [
        distributions,
        optimal_k_against_separation,
        *(lambda task=task: stages(task) for task in TASKS),
        effectiveness_by_lambda,
        auc_against_separation,
        ans_curve,
    ]
    paths: list[Path] = []
    for done, make in enumerate(makers):
        made = make()
        if progress is not None:
            progress(made.name, done, len(makers))
        paths += save_all(made, out)
    return paths


def distributions() -> Figure:
    """Scores of positives and negatives under the labels and under a model that is not there yet."""
    alt = require("altair", extra="plot")
    x = np.linspace(-4, 7, 221)
    panels = (("labels: separation 2.4 (AUC 0.955)", 2.4), ("model half-way: separation 1.2 (AUC 0.802)", 1.2))
    rows: Rows = [
        {
            "scores": side,
            "panel": panel,
            "score": float(at),
            "density": math.exp(-0.5 * (at - mean) ** 2) / math.sqrt(2 * math.pi),
        }
        for panel, mu in panels
        for side, mean in (("negatives", 0.0), ("positives", mu))
        for at in x
    ]
    chart = (
        alt.Chart(inline(rows))
        .mark_area(opacity=0.35, line=True)
        .encode(
            x=alt.X("score:Q", title="score (standard deviations)"),
            y=alt.Y("density:Q", title="density", stack=None),
            color=alt.Color(
                "scores:N", title=None, scale=alt.Scale(domain=["negatives", "positives"], range=[GREY, BLUE])
            ),
        )
        .properties(width=330, height=200)
        .facet(alt.Facet("panel:N", sort=[name for name, _ in panels]), columns=2)
        .properties(
            title=_titled(
                "Scores of positives and negatives", "The overlap is label noise on the left, model error on the right."
            )
        )
    )
    return figure("score-distributions", chart, rows)


def optimal_k_against_separation() -> Figure:
    """K* on the simulated curve, for separations from 0.2 to 5, with the paper's three tasks on it."""
    alt = require("altair", extra="plot")
    separations = np.round(np.arange(0.2, 5.001, 0.05), 2)
    estimates = [optimal_k(float(auc(mu))) for mu in separations]
    rows: Rows = [
        {
            "separation": float(mu),
            "auc": float(auc(mu)),
            "k": estimate.k,
            "margin": estimate.margin,
            "verdict": estimate.verdict,
            "flat_low": estimate.flat[0],
            "flat_high": estimate.flat[1],
        }
        for mu, estimate in zip(separations, estimates, strict=True)
    ]
    tasks: Rows = [
        {"separation": task.separation, "k": float(task.printed_k), "text": str(task.printed_k)} for task in TASKS
    ]
    x = alt.X("separation:Q", title="label separation")
    y = alt.Y(
        "k:Q",
        title="optimal K (log scale)",
        scale=alt.Scale(type="log", domain=[1, 30000], clamp=True),
        axis=alt.Axis(values=[1, 10, 100, 1000, 10000], format="~s"),
    )
    closed = [row for row in rows if row["flat_high"] is not None and row["verdict"] == "ok"]
    band = alt.Chart(inline(closed)).mark_area(color=ORANGE, opacity=0.22)
    line = alt.Chart(inline(rows)).mark_line(size=2.5)
    dots = alt.Chart(inline(tasks))
    solid = alt.Color("verdict:N", title="verdict", scale=alt.Scale(domain=["ok", "vacuous"], range=[BLUE, GREY]))
    chart = alt.layer(
        band.encode(x=x, y=alt.Y("flat_low:Q", scale=alt.Scale(type="log")), y2="flat_high:Q"),
        line.encode(x=x, y=y, color=solid),
        dots.mark_point(color=RED, size=70, shape="cross", filled=True).encode(x=x, y=y),
        dots.mark_text(color=RED, dy=16, dx=4).encode(x=x, y=y, text="text:N"),
    ).properties(
        width=620,
        height=320,
        title=_titled(
            "Optimal K against label separation (lambda 0.9, simulated training)",
            "Blue: K*; orange: as good (within 1%); grey: vacuous, the maximum gains less than 0.01 over K = infinity.",
            "Red: the K that the paper prints. 180 does not follow from its formula: 4.07 gives 936, 4.5 gives 3,713.",
        ),
    )
    return figure("optimal-k", chart, rows)


def stages(task: Task) -> Figure:
    """v and the shares of good, bad and easy samples against K, at six stages of training."""
    alt = require("altair", extra="plot")
    ks = np.geomspace(1, 10 * max(task.printed_k, _last_k(task)), 121)
    kinds = ("effectiveness v", "good", "bad", "easy")
    panels = [_stage_panel(task, share) for share in STAGES]
    rows: Rows = [
        {"stage": share, "panel": panel, "k": float(k), "kind": kind, "value": float(value)}
        for share, panel in zip(STAGES, panels, strict=True)
        for kind, values in zip(kinds, _stage_values(task.separation, share * task.separation, ks), strict=True)
        for k, value in zip(ks, values, strict=True)
    ]
    color = alt.Color(
        "kind:N", title=None, sort=list(kinds), scale=alt.Scale(domain=list(kinds), range=[BLUE, GREEN, RED, GREY])
    )
    chart = (
        alt.Chart(inline(rows))
        .mark_line(size=2)
        .encode(
            x=_log_k(alt, ks),
            y=alt.Y("value:Q", title="share of samples, or v"),
            color=color,
            strokeDash=alt.condition("datum.kind == 'effectiveness v'", alt.value([1, 0]), alt.value([5, 3])),
        )
        .properties(width=230, height=150)
        .facet(alt.Facet("panel:N", sort=panels), columns=3)
        .properties(
            title=_titled(
                f"Training stages: {task.title}",
                "Each panel: model separation over label separation, and where v peaks in K (lambda 0.9).",
                "At the last stage good and bad samples coincide, and no K gains anything over 1 - lambda.",
            )
        )
    )
    return figure(f"stages-{task.separation:g}", chart, rows)


def effectiveness_by_lambda() -> Figure:
    """v(K) over a whole simulated training for seven lambdas, K*(0.9) dashed."""
    alt = require("altair", extra="plot")
    rows: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    for task in TASKS:
        estimates = {lam: optimal_k(float(auc(task.separation)), lam=lam, max_k=1e5) for lam in LAMS}
        found = estimates[LAM]
        panel = f"{task.name}: separation {task.separation:g}; K* {_plain(found.k)}, printed {task.printed_k}"
        marks.append({"panel": panel, "k": found.k})
        for lam, estimate in estimates.items():
            curve = zip(estimate.curve.k[::2], estimate.curve.v[::2], strict=True)
            rows += [{"panel": panel, "lambda": f"{lam:g}", "k": k, "effectiveness": v} for k, v in curve]
    # One data set for both layers: a facet of layers needs it.
    data = [*rows, *({**mark, "lambda": "0.9", "mark": 1} for mark in marks)]
    base = alt.Chart()
    x = _log_k(alt, np.array([1.0, 1e5]))
    lines = (
        base.transform_filter("!isValid(datum.mark)")
        .mark_line(size=2)
        .encode(
            x=x,
            y=alt.Y("effectiveness:Q", title="mean effectiveness v"),
            color=alt.Color(
                "lambda:N", title="lambda", sort=[f"{lam:g}" for lam in LAMS], scale=alt.Scale(scheme="viridis")
            ),
        )
    )
    rule = base.transform_filter("isValid(datum.mark)").mark_rule(color=RED, strokeDash=[5, 3], size=1.5).encode(x=x)
    chart = (
        alt.layer(lines, rule, data=inline(data))
        .properties(width=330, height=200)
        .facet(alt.Facet("panel:N", sort=[mark["panel"] for mark in marks]), columns=2)
        .properties(
            title=_titled(
                "Effectiveness against K for seven lambdas (simulated training)",
                "Dashed: K* at lambda 0.9. Every curve tends to 1 - lambda as K grows, whatever the data.",
            )
        )
    )
    return figure("effectiveness-by-lambda", chart, rows)


def auc_against_separation() -> Figure:
    """The closed form of eq. 7."""
    alt = require("altair", extra="plot")
    rows: Rows = [{"separation": float(mu), "auc": float(auc(mu))} for mu in np.linspace(0, 5, 101)]
    tasks: Rows = [
        {
            "separation": task.separation,
            "auc": float(auc(task.separation)),
            "text": f"{task.separation:g}: {float(auc(task.separation)):.5f}",
        }
        for task in TASKS
    ]
    x = alt.X("separation:Q", title="separation")
    y = alt.Y("auc:Q", title="AUC", scale=alt.Scale(domain=[0.5, 1.0]))
    dots = alt.Chart(inline(tasks))
    chart = alt.layer(
        alt.Chart(inline(rows)).mark_line(color=BLUE, size=2.5).encode(x=x, y=y),
        dots.mark_point(color=RED, filled=True, size=60).encode(x=x, y=y),
        *(
            # The last two points are neighbours: each label gets a line of its own.
            alt.Chart(inline([task])).mark_text(color=RED, align="left", dx=4, dy=dy).encode(x=x, y=y, text="text:N")
            for task, dy in zip(tasks, (14, 14, 14, 30), strict=True)
        ),
    ).properties(
        width=520,
        height=280,
        title=_titled(
            "AUC against separation",
            "AUC = Phi(separation / sqrt 2), in closed form. The paper's pair, AUC 0.998 with 4.5, is not on it:",
            "0.998 is 4.07, and 4.5 is 0.99927.",
        ),
    )
    return figure("auc-separation", chart, rows)


def ans_curve() -> Figure:
    """K over training under ANS."""
    alt = require("altair", extra="plot")
    rules = {f"{task.name}: peak {task.printed_k}": AnsK(peak=task.printed_k) for task in TASKS[:3]}
    rows: Rows = [
        {"rule": name, "fraction": float(fraction), "k": rule(float(fraction))}
        for name, rule in rules.items()
        for fraction in np.linspace(0, 1, 201)
    ]
    chart = (
        alt.Chart(inline(rows))
        .mark_line(size=2.5, color=BLUE)
        .encode(
            x=alt.X("fraction:Q", title="share of training steps", axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y("k:Q", title="K"),
        )
        .properties(width=230, height=180)
        .facet(alt.Facet("rule:N", sort=list(rules)), columns=3)
        .resolve_scale(y="independent")
        .properties(
            title=_titled(
                "Adaptive negative sampling (ANS): K over training",
                "From 1 to the peak at 10% of the steps, then down to 1. The decline does not follow from the formula:",
                "the stage-wise optimum rises over most of training.",
            )
        )
    )
    return figure("ans", chart, rows)


def _stage_values(label: float, model: float, ks: Floats) -> Sequence[Floats]:
    return (effectiveness(label, model, ks, LAM), *sample_kinds(label, model, ks))


def _stage_panel(task: Task, share: float) -> str:
    """What a panel says above itself: the stage, and where v peaks in K."""
    ks = np.geomspace(1, 1e6, 2001)
    v = effectiveness(task.separation, share * task.separation, ks, LAM)
    top = int(np.argmax(v))
    # Where nothing is gained over the limit, the place of the maximum has no meaning.
    best = f"best K {_plain(ks[top])}" if v[top] - (1 - LAM) >= LEAST_MARGIN else "no K is better"
    return f"{share:g} of the way: {best}"


def _last_k(task: Task) -> float:
    return optimal_k(float(auc(task.separation))).k


def _log_k(alt: Any, ks: Floats) -> Any:
    return alt.X(
        "k:Q",
        title="K (log scale)",
        scale=alt.Scale(type="log", domain=[1, float(ks[-1])], nice=False),
        axis=alt.Axis(values=[10**i for i in range(7)], format="~s"),
    )


def _plain(k: float) -> str:
    return f"{k:,.0f}" if k >= 100 else f"{k:.3g}"


def _titled(text: str, *notes: str) -> dict[str, Any]:
    return {"text": text, "subtitle": list(notes)}

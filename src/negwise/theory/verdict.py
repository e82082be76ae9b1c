"""The verdict on an estimate: ok, vacuous, capped, inconsistent or incomplete, with its reasons."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.special import ndtri

from negwise.theory.optimum import Optimum
from negwise.theory.pilot_curves import PilotCurve
from negwise.theory.pilot_summary import PilotSummary
from negwise.theory.separation import Floats, auc

Verdict = Literal["ok", "capped", "vacuous", "inconsistent", "incomplete"]

LEAST_MARGIN = 0.01
MAX_SHARE_AT_END = 0.10
MAX_INTERVAL_RATIO = 10.0
_MIN_SIGMAS = 3.0
_THREE_SIGMA_TAIL = 0.00135  # the one-sided probability of three sigmas
_AUC_TOLERANCE = 0.02  # in AUC, if no standard errors are known
_MIN_OVERLAP = 0.1


def contradictions(summary: PilotSummary, train: PilotCurve, val: PilotCurve | None) -> list[str]:
    """The reasons why the curves contradict each other; any of them makes the verdict `inconsistent`."""
    reasons = []
    if val is not None and train.steps.size > 1 and val.steps.size > 1:
        reasons += _no_overlap(train.steps, val.steps)
    peak, label = summary.peak_separation, summary.label_separation
    if peak is not None and _exceeds(peak, label, summary.model_se, summary.label_se):
        reasons.append(
            f"Validation AUC {float(auc(peak)):.4f} lies above training AUC {float(auc(label)):.4f} by "
            "more than noise. The labels bound what a model can reach, so the two are not the same AUC: use the same "
            "function, negatives and evaluation mode (no dropout) for both."
        )
    for name, curve in (("Training", train), ("Validation", val)):
        if curve is not None:
            reasons += _below_chance(name, curve)
    return reasons


def decide_verdict(
    best: Optimum,
    margin: float,
    summary: PilotSummary,
    lam: float,
    noisy_ks: Floats | None,
    interval: tuple[float, float] | None,
) -> tuple[Verdict, list[str]]:
    """`vacuous`, `capped` or `ok`, with the reason for one of the first two."""
    end = float(best.ks[-1])
    if summary.horizon == 0.0:
        return "vacuous", [
            "Validation is at 95% of its peak before training starts (step 0), so there is no rise to average over: "
            "K* is that of a model which never changes."
        ]
    if margin < LEAST_MARGIN:
        return "vacuous", [_no_margin_reason(margin, lam)]
    if best.at_end:
        return "capped", [
            f"Effectiveness still rises at the end of the search, K = {end:g}. {_how_to_search_further(summary)}"
        ]
    at_end = 0.0 if noisy_ks is None else float(np.mean(noisy_ks >= end))
    if at_end > MAX_SHARE_AT_END:
        return "vacuous", [
            f"For {at_end:.0%} of the errors that the standard errors allow, K* runs to the end of the search "
            f"({end:g}). Evaluate on more queries."
        ]
    if interval is not None and interval[1] > MAX_INTERVAL_RATIO * interval[0]:
        return "capped", [
            f"The 90% interval, {interval[0]:.3g} to {interval[1]:.3g}, is wider than a factor of ten. Evaluate on "
            "more queries to pin K down."
        ]
    return "ok", []


def _how_to_search_further(summary: PilotSummary) -> str:
    """What to do to search for a larger K."""
    if summary.model.empirical is None:
        return "Raise max_k to search further."
    return "Ranks say nothing beyond the negatives that were scored: score more of them for each positive."


def _no_margin_reason(margin: float, lam: float) -> str:
    gains = f"gains {margin:.4f}" if margin > 0 else "gains nothing"
    start = f"The best K {gains} over a K so large that every sample is easy; under {LEAST_MARGIN} that is no maximum."
    if lam == 0.5:
        return (
            f"{start} At lambda 0.5 no K ever gains anything, whatever the data: take a larger one; the paper has 0.9."
        )
    return f"{start} The labels are too noisy, the model is too close to them, or lambda ({lam:g}) is too small."


def _exceeds(model: float, label: float, model_se: float | None, label_se: float | None) -> bool:
    if model_se is not None and label_se is not None:
        return model - label > _MIN_SIGMAS * math.hypot(model_se, label_se)
    return bool(auc(model) - auc(label) > _AUC_TOLERANCE)


def _below_chance(name: str, curve: PilotCurve) -> list[str]:
    # The more evaluations there are, the likelier one of them is below by chance alone.
    sigmas = float(-ndtri(_THREE_SIGMA_TAIL / curve.steps.size))
    noise = _AUC_TOLERANCE if curve.se is None else sigmas * curve.se
    trained = (curve.steps > 0) | (curve.steps.size == 1)  # an untrained model may be on either side of chance
    low = np.flatnonzero((curve.auc < 0.5 - noise) & trained)
    if not low.size:
        return []
    at = "" if curve.steps.size == 1 else f" at step {curve.steps[low[0]]:g}"
    return [
        f"{name} AUC {curve.auc[low[0]]:.4f}{at} is below 0.5: negatives score above positives. If smaller scores "
        "are better in your model, flip their sign."
    ]


def _no_overlap(train: Floats, val: Floats) -> list[str]:
    shared = min(train[-1], val[-1]) - max(train[0], val[0])
    whole = max(train[-1], val[-1]) - min(train[0], val[0])
    if shared >= _MIN_OVERLAP * whole:
        return []
    return [
        f"The curves share less than a tenth of their steps: training has {train[0]:g} to {train[-1]:g}, validation "
        f"{val[0]:g} to {val[-1]:g}. If one counts epochs and the other steps, bring them to one unit."
    ]

"""When an estimate means something, and plain words for when it does not."""

from __future__ import annotations

import math

import numpy as np

from negwise.theory.optimum import Optimum
from negwise.theory.pilot import Curve
from negwise.theory.separation import Floats, auc

LEAST_MARGIN = 0.01
MOST_AT_END = 0.10
WIDEST = 10.0
_SIGMAS = 3.0
_TOLERANCE = 0.01  # in AUC, where no standard errors are known


def contradictions(
    label: float,
    label_se: float | None,
    train: Curve,
    val: Curve | None,
    peak: float | None,
    model_se: float | None,
) -> list[str]:
    """What in the curves cannot be: `inconsistent`, each with its reason. ``peak`` is validation's best separation."""
    found = []
    if val is not None and peak is not None and train.steps.size > 1 and val.steps.size > 1:
        found += _no_overlap(train.steps, val.steps)
    noise = None if label_se is None or model_se is None else _SIGMAS * math.hypot(label_se, model_se)
    if peak is not None and _above(peak, label, noise):
        found.append(
            f"Validation AUC {float(auc(peak)):.4f} lies above training AUC {float(auc(label)):.4f} by more than "
            "noise. The labels bound what a model can reach, so the two are not the same AUC: use the same function, "
            "negatives and evaluation mode (no dropout) for both."
        )
    for name, curve in (("Training", train), ("Validation", val)):
        if curve is not None:
            found += _below_chance(name, curve)
    return found


def judge(
    best: Optimum, margin: float, draws: Floats | None, interval: tuple[float, float] | None
) -> tuple[str, list[str]]:
    """`vacuous`, `capped` or `ok`, with the reason for either of the first two."""
    end = float(best.ks[-1])
    if margin < LEAST_MARGIN:
        return "vacuous", [
            f"The best K gains {margin:.4f} over a K so large that every sample is easy; under {LEAST_MARGIN} the "
            "maximum is not worth the name. The labels are too noisy, or the model too close to them."
        ]
    if best.at_end:
        return "capped", [f"Effectiveness still rises at the end of the search, K = {end:g}. Raise max_k to go on."]
    at_end = 0.0 if draws is None else float(np.mean(draws >= end))
    if at_end > MOST_AT_END:
        return "vacuous", [
            f"In {at_end:.0%} of the draws that the standard errors allow, K* runs to the end of the search "
            f"({end:g}). Evaluate on more queries."
        ]
    if interval is not None and interval[1] > WIDEST * interval[0]:
        return "capped", [
            f"The 90% interval, {interval[0]:.3g} to {interval[1]:.3g}, is wider than a factor of ten. Evaluate on "
            "more queries to pin K down."
        ]
    return "ok", []


def _above(model: float, label: float, noise: float | None) -> bool:
    if noise is not None:
        return model - label > noise
    return bool(auc(model) - auc(label) > _TOLERANCE)


def _below_chance(name: str, curve: Curve) -> list[str]:
    noise = _TOLERANCE if curve.se is None else _SIGMAS * curve.se
    low = np.flatnonzero(curve.auc < 0.5 - noise)
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
    if shared >= 0.5 * whole:
        return []
    return [
        f"The curves hardly overlap: training has steps {train[0]:g} to {train[-1]:g}, validation {val[0]:g} to "
        f"{val[-1]:g}. If one counts epochs and the other steps, bring them to one unit."
    ]

"""What the curves of a pilot say in the framework's terms: label separation, model side, horizon, forecast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from negwise.theory.forecast import Forecast, forecast, still_rising
from negwise.theory.horizon import HORIZON, RAMP_END, horizon_index, jitter, peak_index, smooth
from negwise.theory.model_side import (
    ModelSide,
    model_from_curve,
    model_from_ramp,
    ranks_along_ramp,
    ranks_over_curve,
)
from negwise.theory.pilot import Curve
from negwise.theory.separation import Floats, auc

SIMULATED_END = -math.expm1(-RAMP_END)  # the share of the label separation that the paper's curve ends at
_PINNED = 0.10  # a forecast counts where its standard error is at most this share of the asymptote
_FARTHEST = 10.0  # no AUC that can be measured has a larger separation
_LATE = 0.9  # validation that peaks in the last tenth of the pilot has not turned down


@dataclass(frozen=True)
class Reading:
    """A pilot read: both sides of effectiveness, with standard errors where the curves had them."""

    label: float
    label_step: float | None
    label_se: float | None
    peak: float | None  # validation's best separation; None where there is no validation
    peak_step: float | None
    model_se: float | None
    model_at: Callable[[float], ModelSide]  # share of the peak at which training counts as converged -> P(B)
    horizon: float | None
    horizon_se: float  # of the share of the peak at which T is read: noise that evaluations do not share
    source: str
    notes: tuple[str, ...]

    @functools.cached_property
    def model(self) -> ModelSide:
        return self.model_at(HORIZON)


def read_pilot(train: Curve, val: Curve | None) -> Reading:
    """Label and model side from the curves, by the number of validation points: none, one, or a curve."""
    if val is None:
        return _simulated(train)
    return _pair(train, val) if val.steps.size == 1 else _curve(train, val)


def _simulated(train: Curve) -> Reading:
    label, step = _label(train, None)
    return Reading(
        label,
        step,
        train.se_at(train.steps[-1]),
        None,
        None,
        None,
        lambda share: model_from_ramp(SIMULATED_END * label, share),
        None,
        0.0,
        "simulated",
        ("No validation AUC: training is simulated by the paper's curve, mu' = mu (1 - e^-t) up to t = 3.",),
    )


def _pair(train: Curve, val: Curve) -> Reading:
    label, step = _label(train, None)
    end = float(val.separations[0])

    def model_at(share: float) -> ModelSide:
        side = model_from_ramp(end, share)
        if val.standings is None:
            return side
        return replace(side, by_ranks=ranks_along_ramp(end, val.standings[0], share))

    note = f"One validation AUC ({val.auc[0]:.4f}): it is taken as the end of a simulated curve, never as a constant."
    se = train.se_at(train.steps[-1])
    return Reading(label, step, se, end, None, val.se_at(val.steps[0]), model_at, None, 0.0, "pair", (note,))


def _curve(train: Curve, val: Curve) -> Reading:
    smoothed = val.smoothed
    peak, last = peak_index(smoothed), horizon_index(smoothed)
    label, label_step = _label(train, float(val.steps[peak]))
    notes = []
    if last == 0:
        notes.append(
            f"The first evaluation (step {val.steps[0]:g}) already is at 95% of the peak, so the rise itself was not "
            "seen. Evaluate more often at the start."
        )
    if label_step is not None and train.steps[-1] > label_step and train.smoothed[-1] > label:
        notes.append(
            f"Validation peaks at step {val.steps[peak]:g}; the training AUC is read there ({float(auc(label)):.4f}), "
            f"not where it climbed to afterwards ({train.auc[-1]:.4f})."
        )
    if val.steps[last] > _LATE * val.steps[-1] and still_rising(val.steps, val.separations):
        notes.append("Validation AUC still rises at the end of the pilot; T may move with a longer one.")
    return Reading(
        label,
        label_step,
        train.se_at(float(val.steps[peak])),
        float(smoothed[peak]),
        float(val.steps[peak]),
        val.se_at(float(val.steps[peak])),
        _models(val, val.steps, val.separations, smoothed),
        float(val.steps[last]),
        jitter(val.steps, val.separations) / abs(float(smoothed[peak])),
        "curve",
        tuple(notes),
    )


def _label(train: Curve, step: float | None) -> tuple[float, float | None]:
    """The label separation, and the step it was read at: ``step``, or the end; None where there is no curve."""
    if train.steps.size == 1:
        return float(train.separations[0]), None
    at = float(train.steps[-1]) if step is None else min(max(step, float(train.steps[0])), float(train.steps[-1]))
    return float(np.interp(at, train.steps, train.smoothed)), at


def _models(val: Curve, steps: Floats, separations: Floats, smoothed: Floats) -> Callable[[float], ModelSide]:
    def model_at(share: float) -> ModelSide:
        last = horizon_index(smoothed, share)
        side = model_from_curve(steps, separations, last)
        if val.standings is None:
            return side
        return replace(side, by_ranks=ranks_over_curve(steps, val.standings, last))

    return model_at


def training_forecast(train: Curve, reading: Reading) -> tuple[bool, Forecast | None]:
    """Whether the label separation was still rising where it was read, and a forecast that is pinned down, or None.

    Where validation turned down before the end of the pilot, a further rise of the training AUC is overfitting.
    """
    if train.steps.size < 3 or (reading.peak_step is not None and reading.peak_step < _LATE * train.steps[-1]):
        return False, None
    smoothed = train.smoothed
    if not still_rising(train.steps, train.separations):
        return False, None
    fit = _pinned(forecast(train.steps, train.separations), float(smoothed[-1]))
    settled = fit is not None and fit.settles_at <= train.steps[-1]
    return not settled, None if settled else fit


def _pinned(fit: Forecast | None, now: float) -> Forecast | None:
    """The fit, where it can be relied on."""
    if fit is None or not now < fit.asymptote < _FARTHEST or fit.se > _PINNED * fit.asymptote:
        return None
    return fit


def with_forecast(reading: Reading, val: Curve | None, fit: Forecast) -> Reading:
    """The reading with the label where it is going, and validation gone on with where it still rises too."""
    label_se = None if reading.label_se is None else math.hypot(reading.label_se, fit.se)
    moved = replace(reading, label=fit.asymptote, label_se=label_se)
    if reading.source == "simulated":
        return replace(moved, model_at=lambda share: model_from_ramp(SIMULATED_END * fit.asymptote, share))
    if reading.source == "pair" or val is None or val.standings is not None:
        return moved
    smoothed = val.smoothed
    if not still_rising(val.steps, val.separations):
        return moved
    way = _pinned(forecast(val.steps, val.separations), float(smoothed[-1]))
    if way is None:
        return moved
    ahead = np.linspace(val.steps[-1], max(1.5 * way.settles_at, 2.0 * val.steps[-1]), 65)[1:]
    steps = np.concatenate([val.steps, ahead])
    separations = np.concatenate([val.separations, way.at(ahead)])
    smoothed = smooth(steps, separations)
    return replace(
        moved,
        model_at=_models(val, steps, separations, smoothed),
        horizon=float(steps[horizon_index(smoothed)]),
    )

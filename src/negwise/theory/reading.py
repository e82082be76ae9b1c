"""What the curves of a pilot say in the framework's terms: label separation, model side, horizon, forecast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from negwise.theory.forecast import Forecast, forecast, still_rising
from negwise.theory.horizon import HORIZON, RAMP_END, horizon_index, jitter, peak_index
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


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A pilot read: both sides of effectiveness, with standard errors where the curves had them."""

    source: str  # "curve", "pair" or "simulated"
    label: float
    label_step: float | None
    label_se: float | None
    peak: float | None = None  # validation's best separation; None where there is no validation
    peak_step: float | None = None
    model_se: float | None = None
    model_at: Callable[[float], ModelSide]  # share of the peak at which training counts as converged -> P(B)
    horizon: float | None = None
    horizon_se: float = 0.0  # of the share of the peak at which T is read: noise that evaluations do not share
    notes: tuple[str, ...] = ()

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
    note = "No validation AUC: training is simulated by the paper's curve, mu' = mu (1 - e^-t) up to t = 3."
    return Reading(
        source="simulated",
        label=label,
        label_step=step,
        label_se=train.se_at(train.steps[-1]),
        model_at=lambda share: model_from_ramp(SIMULATED_END * label, share),
        notes=(note,),
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
    return Reading(
        source="pair",
        label=label,
        label_step=step,
        label_se=train.se_at(train.steps[-1]),
        peak=end,
        model_se=val.se_at(val.steps[0]),
        model_at=model_at,
        notes=(note,),
    )


def _curve(train: Curve, val: Curve) -> Reading:
    smoothed = val.smoothed
    peak, last = peak_index(smoothed), horizon_index(smoothed)
    top, peak_step = float(smoothed[peak]), float(val.steps[peak])
    label, label_step = _label(train, peak_step)
    return Reading(
        source="curve",
        label=label,
        label_step=label_step,
        label_se=train.se_at(peak_step),
        peak=top,
        peak_step=peak_step,
        model_se=val.se_at(peak_step),
        model_at=_models(val, val.steps, val.separations, smoothed),
        horizon=float(val.steps[last]),
        # A share of the peak means something above chance only.
        horizon_se=jitter(val.steps, val.separations) / top if top > 0 else 0.0,
        notes=tuple(_curve_notes(train, val, label, label_step, peak, last)),
    )


def _curve_notes(
    train: Curve, val: Curve, label: float, label_step: float | None, peak: int, last: int
) -> Iterator[str]:
    """What a reader of the curves has to know about how they were read."""
    if last == 0 and val.steps[0] > 0:
        yield (
            f"The first evaluation (step {val.steps[0]:g}) already is at 95% of the peak, so the rise itself was not "
            "seen. Evaluate more often at the start."
        )
    if val.steps[last] > _LATE * val.steps[-1] and still_rising(val.steps, val.separations):
        yield "Validation AUC still rises at the end of the pilot; T may move with a longer one."
    if label_step is None:
        return
    if train.steps.size < 3:
        yield f"{train.steps.size} evaluations cannot show whether training had converged; K* may be too low."
    if label_step < val.steps[peak]:
        yield (
            f"Validation peaks at step {val.steps[peak]:g}, after the last training AUC; the label separation is read "
            f"at step {label_step:g}."
        )
    elif train.steps[-1] > label_step and train.smoothed[-1] > label:
        yield (
            f"Validation peaks at step {val.steps[peak]:g}; the training AUC is read there ({float(auc(label)):.4f}), "
            f"not where it climbed to afterwards ({train.auc[-1]:.4f})."
        )


def _label(train: Curve, step: float | None) -> tuple[float, float | None]:
    """The label separation, and the step it was read at: ``step``, or the end; None where there is no curve."""
    if train.steps.size == 1:
        return float(train.separations[0]), None
    first, end = float(train.steps[0]), float(train.steps[-1])
    at = end if step is None else min(max(step, first), end)
    return float(np.interp(at, train.steps, train.smoothed)), at


def _models(val: Curve, steps: Floats, separations: Floats, smoothed: Floats) -> Callable[[float], ModelSide]:
    def model_at(share: float) -> ModelSide:
        last = horizon_index(smoothed, share)
        side = model_from_curve(steps, separations, last)
        if val.standings is None:
            return side
        return replace(side, by_ranks=ranks_over_curve(steps, val.standings, last))

    return model_at


def training_rises(train: Curve, reading: Reading) -> bool:
    """Whether the label separation was still rising where it was read.

    Where validation turned down before the end of the pilot, a further rise of the training AUC is overfitting.
    """
    if train.steps.size < 3 or (reading.peak_step is not None and reading.peak_step < _LATE * train.steps[-1]):
        return False
    if not still_rising(train.steps, train.separations):
        return False
    fit = _pinned(train)
    return fit is None or fit.settles_at > train.steps[-1]


def _pinned(curve: Curve) -> Forecast | None:
    """Where a curve is going, if that can be relied on."""
    fit = forecast(curve.steps, curve.separations)
    if fit is None or not curve.smoothed[-1] < fit.asymptote < _FARTHEST or fit.se > _PINNED * fit.asymptote:
        return None
    return fit


def with_forecast(reading: Reading, train: Curve, val: Curve | None) -> tuple[Reading, Forecast] | None:
    """The reading at the end of a training that goes on; None where that cannot be told.

    Both sides have to be known there: the label where it is going, validation gone on with where it still rises. A
    label of the future beside a validation of today would be neither.
    """
    fit = _pinned(train)
    if fit is None or reading.source == "pair":
        return None
    label_se = None if reading.label_se is None else math.hypot(reading.label_se, fit.se)
    moved = replace(reading, label=fit.asymptote, label_se=label_se, label_step=None)
    if val is None:
        return replace(moved, model_at=lambda share: model_from_ramp(SIMULATED_END * fit.asymptote, share)), fit
    if not still_rising(val.steps, val.separations):
        return moved, fit
    way = _pinned(val)
    if way is None or val.standings is not None:
        return None
    ahead = np.linspace(val.steps[-1], max(1.5 * way.settles_at, 2.0 * val.steps[-1]), 65)[1:]
    steps = np.concatenate([val.steps, ahead])
    separations = np.concatenate([val.separations, way.at(ahead)])
    # What was measured is smoothed as it was; the fit is smooth by itself.
    smoothed = np.concatenate([val.smoothed, way.at(ahead)])
    horizon = float(steps[horizon_index(smoothed)])
    return replace(moved, model_at=_models(val, steps, separations, smoothed), horizon=horizon), fit

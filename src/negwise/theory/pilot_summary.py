"""Summarise the curves of a pilot run: label separation, reliability of the model, horizon and forecast."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from negwise.theory.forecast import Forecast, forecast, still_rising
from negwise.theory.horizon import HORIZON, RAMP_END, evaluation_noise, horizon_index, peak_index
from negwise.theory.model_reliability import (
    ModelReliability,
    empirical_from_curve,
    empirical_from_ramp,
    reliability_from_curve,
    reliability_from_ramp,
)
from negwise.theory.pilot_curves import PilotCurve
from negwise.theory.separation import Floats, auc

SIMULATED_END = -math.expm1(-RAMP_END)  # the paper's curve ends at this share of the label separation
_MAX_RELATIVE_SE = 0.10  # a forecast is used if its standard error is at most this share of the asymptote
_MAX_FORECAST = 10.0  # no measurable AUC has a larger separation
_LATE_PEAK = 0.9  # a peak of validation in the last tenth of the pilot is not overfitting


@dataclass(frozen=True, kw_only=True)
class PilotSummary:
    """Both inputs of effectiveness, the label and the model, with standard errors if the curves have them."""

    source: str  # "curve", "pair" or "simulated"
    label_separation: float
    label_step: float | None
    label_se: float | None
    peak_separation: float | None = None  # the best separation of validation; None without validation
    peak_step: float | None = None
    model_se: float | None = None
    model_at: Callable[[float], ModelReliability]  # share of the peak that counts as converged -> mean P(B)
    horizon: float | None = None
    horizon_se: float = 0.0  # of the share of the peak at which T is read, from `evaluation_noise`
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def model(self) -> ModelReliability:
        return self.model_at(HORIZON)


def summarise_pilot(train: PilotCurve, val: PilotCurve | None) -> PilotSummary:
    """The summary of a pilot with no validation AUC, with one, or with a validation curve."""
    if val is None:
        return _summarise_simulated(train)
    return _summarise_pair(train, val) if val.steps.size == 1 else _summarise_curve(train, val)


def training_still_rising(train: PilotCurve, summary: PilotSummary) -> bool:
    """Whether the training AUC still rose where the label separation is read.

    If validation peaks before the end of the pilot, a further rise of the training AUC is overfitting.
    """
    if train.steps.size < 3 or (summary.peak_step is not None and summary.peak_step < _LATE_PEAK * train.steps[-1]):
        return False
    if not still_rising(train.steps, train.separations):
        return False
    fit = _reliable_forecast(train)
    return fit is None or fit.settles_at > train.steps[-1]


def extrapolate(
    summary: PilotSummary, train: PilotCurve, val: PilotCurve | None
) -> tuple[PilotSummary, Forecast] | None:
    """The summary at the end of a longer training, and the fit of the training curve; None without a reliable fit.

    If validation still rises, it needs a reliable fit too: a forecast of the label does not go with a validation curve
    that ends early.
    """
    fit = _reliable_forecast(train)
    if fit is None or summary.source == "pair":
        return None
    label_se = None if summary.label_se is None else math.hypot(summary.label_se, fit.se)
    extrapolated = replace(summary, label_separation=fit.asymptote, label_se=label_se, label_step=None)
    if val is None:
        return replace(
            extrapolated, model_at=lambda share: reliability_from_ramp(SIMULATED_END * fit.asymptote, share)
        ), fit
    if not still_rising(val.steps, val.separations):
        return extrapolated, fit
    val_fit = _reliable_forecast(val)
    if val_fit is None or val.ranks is not None:
        return None
    ahead = np.linspace(val.steps[-1], max(1.5 * val_fit.settles_at, 2.0 * val.steps[-1]), 65)[1:]
    steps = np.concatenate([val.steps, ahead])
    separations = np.concatenate([val.separations, val_fit.at(ahead)])
    # Only the measured part needs smoothing; the fit is smooth.
    smoothed = np.concatenate([val.smoothed, val_fit.at(ahead)])
    horizon = float(steps[horizon_index(smoothed, start=_start(steps, smoothed))])
    return replace(extrapolated, model_at=_model_by_share(val, steps, separations, smoothed), horizon=horizon), fit


def _summarise_simulated(train: PilotCurve) -> PilotSummary:
    label, step = _label_at(train, None)
    note = "No validation AUC: training is simulated by the paper's curve, mu' = mu (1 - e^-t) up to t = 3."
    return PilotSummary(
        source="simulated",
        label_separation=label,
        label_step=step,
        label_se=train.se_at(train.steps[-1]),
        model_at=lambda share: reliability_from_ramp(SIMULATED_END * label, share),
        notes=(note,),
    )


def _summarise_pair(train: PilotCurve, val: PilotCurve) -> PilotSummary:
    label, step = _label_at(train, None)
    end = float(val.separations[0])

    def model_at(share: float) -> ModelReliability:
        model = reliability_from_ramp(end, share)
        if val.ranks is None:
            return model
        return replace(model, empirical=empirical_from_ramp(end, val.ranks[0], share))

    note = f"One validation AUC ({val.auc[0]:.4f}): it is used as the end of a simulated curve, not as a constant."
    return PilotSummary(
        source="pair",
        label_separation=label,
        label_step=step,
        label_se=train.se_at(train.steps[-1]),
        peak_separation=end,
        model_se=val.se_at(val.steps[0]),
        model_at=model_at,
        notes=(note,),
    )


def _summarise_curve(train: PilotCurve, val: PilotCurve) -> PilotSummary:
    smoothed = val.smoothed
    peak, last = peak_index(smoothed), horizon_index(smoothed, start=_start(val.steps, smoothed))
    top, peak_step = float(smoothed[peak]), float(val.steps[peak])
    label, label_step = _label_at(train, peak_step)
    return PilotSummary(
        source="curve",
        label_separation=label,
        label_step=label_step,
        label_se=train.se_at(peak_step),
        peak_separation=top,
        peak_step=peak_step,
        model_se=val.se_at(peak_step),
        model_at=_model_by_share(val, val.steps, val.separations, smoothed),
        horizon=float(val.steps[last]),
        # A share of the peak is meaningful only above chance.
        horizon_se=evaluation_noise(val.steps, val.separations) / top if top > 0 else 0.0,
        notes=tuple(_curve_notes(train, val, label, label_step, peak, last)),
    )


def _curve_notes(
    train: PilotCurve, val: PilotCurve, label: float, label_step: float | None, peak: int, last: int
) -> Iterator[str]:
    """Notes on how the curves were read."""
    if last == 0 and val.steps[0] > 0:
        yield (
            f"The first evaluation (step {val.steps[0]:g}) already is at 95% of the peak, so the rise itself was not "
            "seen. Evaluate more often at the start."
        )
    if val.steps[last] > _LATE_PEAK * val.steps[-1] and still_rising(val.steps, val.separations):
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
            f"not at its later, higher value ({train.auc[-1]:.4f})."
        )


def _label_at(train: PilotCurve, step: float | None) -> tuple[float, float | None]:
    """The label separation and the step at which it is read: ``step``, or the end; None if there is no curve."""
    if train.steps.size == 1:
        return float(train.separations[0]), None
    first, end = float(train.steps[0]), float(train.steps[-1])
    at = end if step is None else min(max(step, first), end)
    return float(np.interp(at, train.steps, train.smoothed)), at


def _model_by_share(
    val: PilotCurve, steps: Floats, separations: Floats, smoothed: Floats
) -> Callable[[float], ModelReliability]:
    def model_at(share: float) -> ModelReliability:
        last = horizon_index(smoothed, share, _start(steps, smoothed))
        model = reliability_from_curve(steps, separations, last)
        if val.ranks is None:
            return model
        return replace(model, empirical=empirical_from_curve(steps, val.ranks, last))

    return model_at


def _start(steps: Floats, smoothed: Floats) -> float:
    """The separation before training: measured at step 0, else that of chance."""
    return float(smoothed[0]) if steps[0] == 0 else 0.0


def from_first_evaluation(summary: PilotSummary, val: PilotCurve | None) -> PilotSummary | None:
    """The same pilot as if its first evaluation had been at step 0; None where it was, or where there is no curve.

    An untrained model is at chance. Where step 0 is missing, that is put in front. A model that was pretrained started
    elsewhere, and this is the other extreme.
    """
    if val is None or val.steps.size < 2 or val.steps[0] == 0:
        return None
    steps = val.steps - val.steps[0]
    return replace(summary, model_at=_model_by_share(val, steps, val.separations, val.smoothed))


def first_part(curve: PilotCurve | None, end: float) -> PilotCurve | None:
    """The curve up to step ``end``; None if fewer than two evaluations are left of more."""
    if curve is None or curve.steps.size == 1:
        return curve
    n = int(np.searchsorted(curve.steps, end, side="right"))
    if n < 2:
        return None
    return PilotCurve(
        curve.steps[:n],
        curve.auc[:n],
        None if curve.se is None else curve.se[:n],
        None if curve.ranks is None else curve.ranks[:n],
    )


def _reliable_forecast(curve: PilotCurve) -> Forecast | None:
    """The forecast of a curve, or None if it is not reliable."""
    fit = forecast(curve.steps, curve.separations)
    if (
        fit is None
        or not curve.smoothed[-1] < fit.asymptote < _MAX_FORECAST
        or fit.se > _MAX_RELATIVE_SE * fit.asymptote
    ):
        return None
    return fit

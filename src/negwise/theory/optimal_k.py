"""`optimal_k`: K* from the curves of a short run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.theory.effectiveness import check_lam, mean_effectiveness
from negwise.theory.estimate import EffectivenessCurve, Estimate, Pilot, Rising
from negwise.theory.horizon import HORIZON
from negwise.theory.interval import coarse_k_grid, k_interval, normal_deviations
from negwise.theory.model_reliability import SATURATION, ModelReliability, reliability_from_ramp
from negwise.theory.optimum import Optimum, k_grid, optimum, peaks
from negwise.theory.pilot_curves import PilotCurve, Scores, counts_for_curve, make_curve
from negwise.theory.pilot_summary import (
    SIMULATED_END,
    PilotSummary,
    extrapolate,
    first_part,
    from_first_evaluation,
    summarise_pilot,
    training_still_rising,
)
from negwise.theory.reliability import MAX_K, reliability
from negwise.theory.separation import Floats, as_floats, auc
from negwise.theory.verdict import Verdict, contradictions, decide_verdict

DEFAULT_MAX_K = 1e6
OTHER_HORIZONS = (0.90, 0.99)
LAMS = (0.80, 0.85, 0.90, 0.95, 0.99)
PILOT_SHARES = (0.5, 0.75)
_N_HORIZON_SLICES = 5
_MAX_HORIZON_SHARE = 0.999  # T is never read after the peak
_LABEL_GROWTH = 1.1  # K* at a label separation so many times higher shows whether K* will rise or fall


EVEN_STEPS_NOTE = (
    "No steps came with the curve, so its evaluations count as evenly spaced. If they are not, pass steps (--steps, "
    "--step-column)."
)


def optimal_k(
    train_auc: ArrayLike | None = None,
    val_auc: ArrayLike | None = None,
    *,
    steps: ArrayLike | None = None,
    train_steps: ArrayLike | None = None,
    n_queries: ArrayLike | None = None,
    n_pairs: ArrayLike | None = None,
    train_queries: ArrayLike | None = None,
    train_pairs: ArrayLike | None = None,
    train_se: ArrayLike | None = None,
    val_se: ArrayLike | None = None,
    train_scores: Scores | None = None,
    val_scores: Scores | Sequence[Scores] | None = None,
    lam: float = 0.9,
    max_k: float | None = None,
) -> Estimate:
    """Estimate the K that maximises the mean effectiveness of training, from the AUC curves of a run with K = 1.

    - ``train_auc``: one number (before overfitting), or a curve, which is read at the peak of validation.
    - ``val_auc``: a curve at ``steps``; or the final number, and the curve up to it is simulated; or None, and the
      whole curve is simulated.
    - ``n_queries``, ``n_pairs``: how many queries, and pairs in total, each validation AUC has. They hold for the
      training AUC too, unless ``train_queries`` and ``train_pairs`` are given. The interval needs them, or the
      standard errors ``train_se`` and ``val_se``.
    - ``train_scores``, ``val_scores``: scores instead of AUCs, as (positives (n,), negatives (n, m) or (m,)). For
      validation also a list of such pairs over ``steps``. P(B) then comes from ranks.
    - ``lam``: the weight of good and bad samples against easy ones.
    - ``max_k``: the largest K of the search (default 1e6).

    >>> optimal_k(train_auc=0.9552).k_int
    21
    """
    lam = check_lam(lam)
    val = make_curve("val", val_auc, val_scores, steps, val_se, n_queries, n_pairs)
    size = as_floats(train_auc, "train_auc").size if train_auc is not None else 1
    if val is None:
        _check_training_only(train_auc, steps, val_se)
        if train_queries is None and train_pairs is None:  # without validation, all counts are of training
            train_queries, train_pairs = n_queries, n_pairs
    elif train_queries is None and train_pairs is None and train_se is None:
        train_queries = counts_for_curve(n_queries, size)
        train_pairs = None if train_queries is None else counts_for_curve(n_pairs, size)
    if train_steps is not None and train_auc is not None and np.ndim(train_auc) == 0:
        raise InputError("train_steps: got steps for a single train_auc, expected a curve, or no steps.")
    own_steps = train_steps if train_steps is not None or size == 1 else steps
    train = make_curve("train", train_auc, train_scores, own_steps, train_se, train_queries, train_pairs)
    if train is None:
        raise InputError(
            "train_auc: got nothing, expected the training AUC of a run with K = 1: a number such as 0.75, a curve, "
            "or train_scores=(positives, negatives)."
        )
    max_k = _search_limit(max_k, val)

    measured = summarise_pilot(train, val)
    summary, best = measured, _find_optimum(measured, lam, max_k)
    basis, rising, reasons = "measured", None, list(measured.notes)
    if steps is None and max(train.steps.size if train_steps is None else 1, 1 if val is None else val.steps.size) > 1:
        reasons.append(EVEN_STEPS_NOTE)
    if training_still_rising(train, measured):
        summary, best, basis, rising = _optimum_while_rising(train, val, measured, best, lam, max_k)
        reasons.insert(0, _rising_reason(rising, basis, train))

    noisy_ks = _noisy_optima(summary, lam, max_k)
    bounds = None if noisy_ks is None else k_interval(noisy_ks, best.k)
    if bounds is None:
        reasons.append(_no_interval_note(summary))
    margin = best.value - (1.0 - lam)
    conflicts = contradictions(measured, train, val)
    verdict: Verdict = "inconsistent"
    verdict_reasons = conflicts
    if not conflicts:
        verdict, verdict_reasons = decide_verdict(best, margin, summary, lam, noisy_ks, bounds)
    missing_start = _missing_start(summary, val, best, lam, max_k)
    if verdict in ("ok", "capped") and missing_start is not None:
        verdict, verdict_reasons = "incomplete", [missing_start]
    return Estimate(
        k=best.k,
        k_int=best.k_int,
        flat=best.flat,
        interval=bounds,
        margin=margin,
        verdict=verdict,
        reasons=tuple(verdict_reasons + reasons),
        label_separation=summary.label_separation,
        horizon=summary.horizon,
        lam=lam,
        max_k=max_k,
        basis=basis,
        source=summary.source,
        label_step=summary.label_step,
        rising=rising,
        k_by_horizon={
            f"{share:.0%}": _optimal_ks(summary.label_separation, summary.model_at(share), [lam], max_k)[0]
            for share in OTHER_HORIZONS
        },
        k_by_lam=dict(
            zip(map(str, LAMS), _optimal_ks(summary.label_separation, summary.model, LAMS, max_k), strict=True)
        ),
        k_by_pilot=_k_by_pilot(train, val, lam, max_k),
        pilot=Pilot(*(_as_tuple(side) for side in (train.steps, train.auc, *_steps_and_auc(val)))),
        curve=EffectivenessCurve(_as_tuple(best.ks), _as_tuple(best.vs)),
    )


def _check_training_only(train_auc: ArrayLike | None, steps: ArrayLike | None, val_se: ArrayLike | None) -> None:
    """Raise an `InputError` for arguments that need a validation curve."""
    if val_se is not None:
        raise InputError("val_se: got an error of validation, but no val_auc. Pass both, or neither.")
    if steps is not None and train_auc is not None and np.ndim(train_auc) == 0:
        raise InputError("steps: got steps, but no curve. Pass train_auc or val_auc as a list.")


def _search_limit(max_k: float | None, val: PilotCurve | None) -> float:
    """The largest K of the search: ``max_k``, and at most the number of negatives that were scored."""
    scored = None if val is None or val.ranks is None else min(each.negatives for each in val.ranks)
    if max_k is None:
        if scored is not None and scored < 2:
            raise InputError("val_scores: got 1 negative for each positive, expected at least 2.")
        return DEFAULT_MAX_K if scored is None else min(DEFAULT_MAX_K, float(scored))
    value = as_floats(max_k, "max_k")
    if value.ndim or not 2 <= value <= MAX_K:
        raise InputError(f"max_k: got {max_k!r}, expected one number from 2 to 1e7.")
    if scored is not None and value > scored:
        raise InputError(
            f"max_k: got {max_k!r}, but the scores have {scored} negatives for each positive, and ranks say nothing "
            "about more. Score more negatives, or pass val_auc instead of val_scores."
        )
    return float(value)


def _find_optimum(summary: PilotSummary, lam: float, max_k: float) -> Optimum:
    return optimum(lambda k: reliability(summary.label_separation, k), summary.model, lam, max_k)


def _optimal_ks(label: float, model: ModelReliability, lams: Sequence[float], max_k: float) -> list[float]:
    """K* at each lambda, to four digits."""
    ks = k_grid(max_k)
    label_reliability, model_reliability = reliability(label, ks), model(ks)
    return [float(peaks(mean_effectiveness(label_reliability, model_reliability, lam), ks)) for lam in lams]


def _optimum_while_rising(
    train: PilotCurve, val: PilotCurve | None, measured: PilotSummary, best: Optimum, lam: float, max_k: float
) -> tuple[PilotSummary, Optimum, str, Rising]:
    """The optimum of a training that still rises: that of its forecast or, without one, as measured; and the basis."""
    extrapolated = extrapolate(measured, train, val)
    if extrapolated is None:
        # K* grows with the label separation, except below about 1, where it falls.
        higher = _optimal_ks(_LABEL_GROWTH * measured.label_separation, measured.model, [lam], max_k)[0]
        basis = "lower bound" if higher > best.k else "unsettled"
        return measured, best, basis, Rising(best.k, None, measured.label_separation, None, None, None, None)
    summary, fit = extrapolated
    found = _find_optimum(summary, lam, max_k)
    more = max(fit.settles_at - float(train.steps[-1]), 0.0)
    rising = Rising(best.k, found.k, measured.label_separation, fit.asymptote, fit.se, fit.settles_at, more)
    return summary, found, "forecast", rising


def _missing_start(
    summary: PilotSummary, val: PilotCurve | None, best: Optimum, lam: float, max_k: float
) -> str | None:
    """Why the curve needs step 0: K* depends on whether the model began at chance or where it was first evaluated."""
    other = from_first_evaluation(summary, val)
    if other is None or val is None:
        return None
    found = _find_optimum(other, lam, max_k)
    if best.as_good(found.k) or found.as_good(best.k):
        return None
    return (
        f"The curve begins at step {val.steps[0]:g}, and K* depends on what came before: {best.k:.3g} if the model "
        f"began at chance, {found.k:.3g} if it began at AUC {val.auc[0]:.4f}, as a pretrained one may. Evaluate at "
        "step 0 too."
    )


def _k_by_pilot(train: PilotCurve, val: PilotCurve | None, lam: float, max_k: float) -> dict[str, float]:
    """K* from the first half and the first three quarters of the pilot, as far as they have curves."""
    if (train if val is None else val).steps.size == 1:
        return {}
    end = max(float(curve.steps[-1]) for curve in (train, val) if curve is not None)
    found = {}
    for share in PILOT_SHARES:
        early_train, early_val = first_part(train, share * end), first_part(val, share * end)
        if early_train is None or (early_val is None and val is not None):
            continue
        summary = summarise_pilot(early_train, early_val)
        best = _find_optimum(summary, lam, max_k)
        if training_still_rising(early_train, summary):
            best = _optimum_while_rising(early_train, early_val, summary, best, lam, max_k)[1]
        found[f"{share:g}"] = best.k
    return found


def _noisy_optima(summary: PilotSummary, lam: float, max_k: float) -> Floats | None:
    """K* under each error of both AUCs (see `negwise.theory.interval`); None if the errors are not known."""
    if summary.label_se is None or (summary.model_se is None and summary.source != "simulated"):
        return None
    ks = coarse_k_grid(max_k)
    # Clipping at `SATURATION` changes no P.
    labels = np.clip(summary.label_separation + normal_deviations(summary.label_se), -SATURATION, SATURATION)
    label_reliability = reliability(labels[:, None], ks)
    if summary.model_se is None:  # a simulated curve ends at a share of the label separation
        model_reliability = np.stack([reliability_from_ramp(SIMULATED_END * label)(ks) for label in labels])
        return peaks(mean_effectiveness(label_reliability, model_reliability, lam), ks)
    noisy_ks = []
    for share in np.minimum(HORIZON + normal_deviations(summary.horizon_se, _N_HORIZON_SLICES), _MAX_HORIZON_SHARE):
        model_reliability = summary.model_at(float(share)).shifted(normal_deviations(summary.model_se), ks)
        noisy_ks.append(
            peaks(mean_effectiveness(label_reliability[:, None, :], model_reliability[None, :, :], lam), ks)
        )
    return np.stack(noisy_ks)


def _no_interval_note(summary: PilotSummary) -> str:
    missing = "training" if summary.label_se is None else "validation"
    return (
        f"No interval: the number of queries of the {missing} AUC is not known. Pass n_queries and n_pairs "
        "(--queries, --pairs), or train_se and val_se."
    )


def _rising_reason(rising: Rising, basis: str, train: PilotCurve) -> str:
    start = f"The training AUC still rises at the end of the pilot ({float(auc(rising.separation_measured)):.4f})."
    longer = f"Train at least as long again (to step {2 * train.steps[-1]:g})."
    if basis == "lower bound":
        return (
            f"{start} K* = {rising.k_measured:.3g} is a lower bound: the curves do not yet show where they will "
            f"end. {longer}"
        )
    if basis == "unsettled":
        return (
            f"{start} K* = {rising.k_measured:.3g} will fall or rise with it (below a separation of about 1, K* falls "
            f"as the AUC rises): the curves do not yet show where they will end. {longer}"
        )
    bound = ", a lower bound" if rising.k_measured < (rising.k_forecast or 0.0) else ""
    return (
        f"{start} A saturating fit puts its end at {float(auc(rising.separation_forecast or 0.0)):.4f} (separation "
        f"{rising.separation_forecast:.2f} +- {rising.separation_se:.2f}). k is that forecast; as measured, K* would "
        f"be {rising.k_measured:.3g}{bound}. About {rising.more_steps:.3g} more steps would settle it."
    )


def _steps_and_auc(curve: PilotCurve | None) -> tuple[Floats, Floats]:
    return (np.empty(0), np.empty(0)) if curve is None else (curve.steps, curve.auc)


def _as_tuple(array: Floats) -> tuple[float, ...]:
    return tuple(array.tolist())

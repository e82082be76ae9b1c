"""Check the arguments of `optimal_k` and turn them into training and validation curves."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.theory.empirical_reliability import ScoreRanks, rank_auc, score_ranks
from negwise.theory.horizon import smooth
from negwise.theory.interval import auc_se_from_counts
from negwise.theory.separation import Floats, as_floats, first_bad, separation, separation_se

Scores = tuple[ArrayLike, ArrayLike]

_AUC_MARGIN = 1e-12  # no sample is large enough to measure an AUC closer to 0 or 1


@dataclass(frozen=True)
class PilotCurve:
    """AUC at steps (n,), its standard errors (n,) if known, and the ranks of the scores if scores were given."""

    steps: Floats
    auc: Floats
    se: Floats | None = None
    ranks: tuple[ScoreRanks, ...] | None = None

    @functools.cached_property
    def separations(self) -> Floats:
        return separation(self.auc)

    @functools.cached_property
    def smoothed(self) -> Floats:
        return smooth(self.separations)

    def se_at(self, step: float) -> float | None:
        """Standard error of the separation at the evaluation nearest to ``step``."""
        if self.se is None:
            return None
        nearest = int(np.argmin(np.abs(self.steps - step)))
        return float(separation_se(self.auc[nearest], self.se[nearest]))


def make_curve(
    name: str,
    aucs: ArrayLike | None,
    scores: Scores | Sequence[Scores] | None,
    steps: ArrayLike | None,
    se: ArrayLike | None,
    n_queries: ArrayLike | None,
    n_pairs: ArrayLike | None,
) -> PilotCurve | None:
    """The curve of the split ``name``, "train" or "val", from AUCs or from scores; None if neither was given."""
    if aucs is not None and scores is not None:
        raise InputError(f"{name}_auc and {name}_scores: got both, expected one of them.")
    if scores is not None:
        return _curve_from_scores(name, scores, steps)
    return None if aucs is None else _curve_from_auc(name, aucs, steps, se, n_queries, n_pairs)


def counts_for_curve(counts: ArrayLike | None, n: int) -> ArrayLike | None:
    """Counts of one curve, reused for another curve of n evaluations.

    They are reused if there are n of them, or if all are equal. Counts that differ between evaluations say nothing
    about other evaluations: None.
    """
    values = np.unique(np.asarray(counts)) if counts is not None else np.empty(0)
    if np.size(counts) == n:  # type: ignore[arg-type]
        return counts
    return values[0] if values.size == 1 else None


def _curve_from_auc(
    name: str,
    auc: ArrayLike,
    steps: ArrayLike | None,
    se: ArrayLike | None,
    n_queries: ArrayLike | None,
    n_pairs: ArrayLike | None,
) -> PilotCurve:
    """The curve from the arguments ``{name}_auc``, steps, ``{name}_se`` and counts, checked."""
    values = _check_auc(f"{name}_auc", auc)
    errors = None
    if se is not None:
        errors = as_floats(se, f"{name}_se")
        if np.any(errors < 0):
            raise InputError(f"{name}_se: got {first_bad(errors, errors < 0)}, expected standard errors of 0 or more.")
        if errors.size not in (1, values.size):
            raise InputError(
                f"{name}_se: got {errors.size} values for {values.size} AUCs, expected one, or one per AUC."
            )
        errors = np.broadcast_to(errors.ravel(), values.shape)
    elif n_queries is not None:
        queries = _check_counts(f"{name}: n_queries", n_queries, 2.0, "2", values.size)
        pairs = (
            None
            if n_pairs is None
            else _check_counts(f"{name}: n_pairs", n_pairs, queries, "the number of queries", values.size)
        )
        errors = auc_se_from_counts(separation(values), queries, pairs)
    elif n_pairs is not None:
        raise InputError("n_pairs: got a number without n_queries; standard errors are over queries. Pass n_queries.")
    return PilotCurve(_check_steps(name, steps, values.size), values, errors)


def _curve_from_scores(name: str, scores: Scores | Sequence[Scores], steps: ArrayLike | None) -> PilotCurve:
    """The curve from scores: one pair (positives, negatives), or a list of such pairs, one per evaluation."""
    sets: list[Any] = [scores] if isinstance(scores, tuple) else list(scores) if isinstance(scores, Sequence) else []
    if not sets or not all(isinstance(one, tuple) and len(one) == 2 for one in sets):
        raise InputError(
            f"{name}_scores: expected a tuple (positives, negatives), or a list of such tuples, one per evaluation."
        )
    ranks = tuple(score_ranks(positives, negatives) for positives, negatives in sets)
    aucs, errors = np.array([rank_auc(one) for one in ranks]).T
    values = _check_auc(f"{name}_scores", aucs)
    return PilotCurve(_check_steps(name, steps, values.size), values, errors, ranks)


def _check_auc(name: str, auc: ArrayLike) -> Floats:
    """AUCs as (n,) with n > 0, each strictly inside (0, 1)."""
    values = as_floats(auc, name)
    if values.ndim > 1:
        raise InputError(f"{name}: got shape {values.shape}, expected one number or one list of numbers.")
    if values.size == 0:
        raise InputError(f"{name}: got an empty curve, expected at least one AUC.")
    bad = (values < _AUC_MARGIN) | (values > 1 - _AUC_MARGIN)
    if not np.any(bad):
        return values.reshape(-1)
    value = float(values.reshape(-1)[np.argmax(bad)])
    hint = "Expected an AUC between 0 and 1, both excluded."
    if 1 < value <= 100:
        hint += f" If this is a percentage, pass {value / 100:g}."
    elif 0 <= value <= 1:
        hint += (
            " A perfect ranking has no finite separation: evaluate on more queries or more negatives, or remove this "
            "evaluation and those after it."
        )
    raise InputError(f"{name}: got {first_bad(values, bad)}. {hint}")


def _check_steps(name: str, steps: ArrayLike | None, n: int) -> Floats:
    """Steps (n,), 0 or more and strictly increasing; 1, 2, ..., n if none were given."""
    if steps is None:
        return np.arange(1.0, n + 1.0)
    values = as_floats(steps, "steps")
    if values.ndim > 1:
        raise InputError(f"steps: got shape {values.shape}, expected one list of numbers.")
    values = values.reshape(-1)
    if values.size != n:
        raise InputError(
            f"steps: got {values.size} for {n} values of the {name} curve, expected one per value. "
            "If the curves were logged at different steps, pass train_steps too."
        )
    if np.any(values < 0):
        raise InputError(f"steps: got {first_bad(values, values < 0)}, expected numbers of 0 or more.")
    back = np.append(False, np.diff(values) <= 0)
    if np.any(back):
        raise InputError(
            f"steps: got {first_bad(values, back)} after {float(values[np.argmax(back) - 1])!r}, expected increasing "
            "steps. Sort the curve and keep one value per step."
        )
    return values


def _check_counts(name: str, count: ArrayLike, least: Floats | float, what: str, n: int) -> Floats:
    """One count, or one for each of n evaluations, as float64. Each is at least ``least``, which ``what`` describes."""
    values = as_floats(count, name)
    if values.ndim > 1 or values.size not in (1, n):
        raise InputError(f"{name}: got {values.size} counts for {n} AUCs, expected one, or one per AUC.")
    each, bound = np.broadcast_arrays(values, least)
    if np.any(each < bound):
        raise InputError(f"{name}: got {first_bad(each, each < bound)}, expected at least {what}.")
    return values

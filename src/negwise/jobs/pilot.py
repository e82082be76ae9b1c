"""The pilot: one run with K = 1, long enough to say where its curves are going, and no longer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from negwise.errors import InputError
from negwise.records import EvalRecord, RunLog
from negwise.theory.estimate import Estimate
from negwise.theory.optimal_k import optimal_k
from negwise.theory.separation import separation

GROWTH = 0.02
"""Growth of the validation separation over the last third, as a share of its peak, below which it has converged."""
MIN_EVALUATIONS = 6
"""Evaluations after the start before anything is read from a curve."""
PERFECT_AUC = (
    "An AUC of the pilot is exactly 0 or 1, which no finite separation gives; it is read as if half a pair more were "
    "known, so that K* there says little beyond 'large'."
)


@dataclass(frozen=True)
class Convergence:
    """Whether a pilot has converged, and why, in a sentence."""

    converged: bool
    why: str


def estimate_from_log(
    log: RunLog, *, lam: float = 0.9, max_k: float | None = None, until: float | None = None
) -> Estimate:
    """K* from the evaluations of a run with K = 1, up to the step ``until`` where one is given."""
    train, val = (_usable(log.of_split(split), until) for split in ("train", "val"))
    if not train or not val:
        raise InputError("the pilot has no evaluation with an AUC on both sides, so there is nothing to estimate from.")
    found = optimal_k(
        [_bounded(record) for record in train],
        [_bounded(record) for record in val],
        train_steps=[record.step for record in train],
        steps=[record.step for record in val],
        train_se=_errors(train),
        val_se=_errors(val),
        lam=lam,
        max_k=max_k,
    )
    perfect = [record.step for record in (*train, *val) if record.auc in (0, 1)]
    return replace(found, reasons=(*found.reasons, PERFECT_AUC)) if perfect else found


def check_convergence(log: RunLog, *, lam: float = 0.9, max_k: float | None = None) -> Convergence:
    """A pilot has converged when three things hold.

    The validation separation grew less than 2% of its peak over the last third of the steps; the K* of every shorter
    curve of that third lies in the flat range of the K* now; the training AUC no longer rises.
    """
    val = _usable(log.of_split("val"), None)
    if len(val) < MIN_EVALUATIONS + 1:
        return Convergence(
            False, f"it has {len(val)} evaluations, and {MIN_EVALUATIONS + 1} are the fewest that say anything"
        )
    steps = np.array([record.step for record in val])
    peaks = np.maximum.accumulate(separation([_bounded(record) for record in val]))
    before = int(np.searchsorted(steps, steps[-1] * 2 / 3, side="right")) - 1
    growth = float((peaks[-1] - peaks[before]) / max(abs(peaks[-1]), 1e-9))
    if growth >= GROWTH:
        return Convergence(False, f"validation separation grew by {growth:.1%} of its peak over the last third")
    now = estimate_from_log(log, lam=lam, max_k=max_k)
    for step in steps[before:-1]:
        then = estimate_from_log(log, lam=lam, max_k=max_k, until=float(step)).k
        if not now.as_good(then):
            return Convergence(False, f"K* was {then:.3g} at step {step:g}, outside the range as good now")
    if now.rising is not None:
        return Convergence(False, "the training AUC still rises")
    grew = f"validation separation grew by {growth:.1%} of its peak over the last third"
    return Convergence(True, f"{grew}, and K* stayed in its range as good")


def _bounded(record: EvalRecord) -> float:
    assert record.auc is not None and record.pairs is not None
    return bounded_auc(record.auc, record.pairs)


def bounded_auc(auc: float, pairs: float) -> float:
    """The AUC of so many pairs, moved off 0 and 1 by half a pair: no finite separation has them."""
    half = 0.5 / pairs
    return float(min(max(auc, half), 1 - half))


def _usable(records: Sequence[EvalRecord], until: float | None) -> list[EvalRecord]:
    return [record for record in records if record.auc is not None and (until is None or record.step <= until)]


def _errors(records: Sequence[EvalRecord]) -> list[float] | None:
    errors = [record.auc_se for record in records if record.auc_se is not None]
    return errors if len(errors) == len(records) else None

"""Good, bad and easy training samples (eq. 5) and training effectiveness (eq. 6)."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike

from negwise.errors import InputError
from negwise.theory.reliability import k_as_floats, reliability
from negwise.theory.separation import Floats, as_floats, check_broadcast


class SampleKinds(NamedTuple):
    """Shares of training samples; they sum to one."""

    good: Floats
    bad: Floats
    easy: Floats


def sample_kinds(label: ArrayLike, model: ArrayLike, k: ArrayLike) -> SampleKinds:
    """Shares of good ``P(A)(1-P(B))``, bad ``P(B)(1-P(A))`` and easy samples (eq. 5). Arguments broadcast.

    ``label`` and ``model`` are separations: P(A) = P(label, K), P(B) = P(model, K).
    """
    reliable_label, reliable_model = _reliabilities(label, model, k)
    good = reliable_label * (1.0 - reliable_model)
    bad = reliable_model * (1.0 - reliable_label)
    return SampleKinds(good, bad, 1.0 - good - bad)


def effectiveness(label: ArrayLike, model: ArrayLike, k: ArrayLike, lam: float = 0.9) -> Floats:
    """Training effectiveness ``v = lam (good - bad) + (1 - lam) easy`` (eq. 6). Arguments broadcast.

    >>> float(effectiveness(1.0, 0.0, 4).round(4))
    0.3147
    """
    return mean_effectiveness(*_reliabilities(label, model, k), check_lam(lam))


def mean_effectiveness(label: Floats, model: Floats, lam: float) -> Floats:
    """Effectiveness from P(A) and P(B): ``(1-lam) + (2 lam - 1) P(A) - P(B) + 2 (1-lam) P(A) P(B)``.

    This is eq. 5 inserted in eq. 6. It is linear in P(B), so the mean of v over training needs only the mean P(B).
    """
    return (1.0 - lam) + (2.0 * lam - 1.0) * label - model + 2.0 * (1.0 - lam) * label * model


def check_lam(lam: float) -> float:
    """``lam`` as a float, or an `InputError` if it is outside [0.5, 1]."""
    try:
        value = float(lam)
    except (TypeError, ValueError) as error:
        raise InputError(f"lam: got {lam!r}, expected a number from 0.5 to 1. The paper uses 0.9.") from error
    if not 0.5 <= value <= 1.0:
        raise InputError(
            f"lam: got {value!r}, expected a number from 0.5 to 1 (below 0.5, easy samples count more than "
            "good ones). The paper uses 0.9."
        )
    return value


def _reliabilities(label: ArrayLike, model: ArrayLike, k: ArrayLike) -> tuple[Floats, Floats]:
    """P(A) and P(B) of the two separations."""
    check_broadcast(label=as_floats(label, "label"), model=as_floats(model, "model"), k=k_as_floats(k))
    return reliability(label, k), reliability(model, k)

"""AUC and separation: two measures of how far positives score above negatives (eq. 7)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from negwise.errors import InputError

Floats = NDArray[np.float64]

SQRT2 = math.sqrt(2.0)


def separation(auc: ArrayLike) -> Floats:
    r"""Separation :math:`\mu = \sqrt2\,\Phi^{-1}(\mathrm{AUC})`; any shape, same shape out.

    Eq. 7 defines it as the mean of :math:`x \sim N(\mu, 1)` such that :math:`P(x > y) = \mathrm{AUC}` with
    :math:`y \sim N(0, 1)`. Since :math:`x - y \sim N(\mu, 2)`, it has a closed form.

    >>> float(separation(0.75).round(3))
    0.954
    """
    value = as_floats(auc, "auc")
    if not np.all((value > 0) & (value < 1)):
        raise InputError(
            f"auc: got {first_bad(value, ~((value > 0) & (value < 1)))}, expected numbers strictly between 0 "
            "and 1. An AUC of 0 or 1 has no finite separation; a percentage must be divided by 100."
        )
    return SQRT2 * ndtri(value)


def auc(separation: ArrayLike) -> Floats:
    r"""AUC of a separation, :math:`\Phi(\mu/\sqrt2)` (eq. 7 in closed form), any shape."""
    return ndtr(as_floats(separation, "separation") / SQRT2)


def separation_se(auc: ArrayLike, auc_se: ArrayLike) -> Floats:
    r"""Standard error of the separation, :math:`2\sqrt\pi\,e^{z^2/2}\,\mathrm{se}` with
    :math:`z = \Phi^{-1}(\mathrm{AUC})`: the slope of `separation` times the standard error of the AUC."""
    return 2.0 * math.sqrt(math.pi) * np.exp(0.25 * separation(auc) ** 2) * as_floats(auc_se, "auc_se")


def as_floats(value: ArrayLike, name: str) -> Floats:
    """``value`` as a float64 array, or an `InputError` that names the argument and the first bad entry."""
    if hasattr(value, "detach"):  # a tensor, on any device and of any precision; torch is not imported here
        value = value.detach().cpu().double().numpy()
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name}: got {_shorten(value)}, expected a number or an array of numbers.") from error
    if not np.all(np.isfinite(array)):
        raise InputError(
            f"{name}: got {first_bad(array, ~np.isfinite(array))}, expected finite numbers. Remove or fix that entry."
        )
    return array


def check_broadcast(**arrays: Floats) -> None:
    """Raise an `InputError` with the shapes of the arguments if they do not broadcast."""
    try:
        np.broadcast_shapes(*(array.shape for array in arrays.values()))
    except ValueError as error:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"shapes do not broadcast: {shapes}. Add an axis, as in x[:, None].") from error


def first_bad(array: Floats, bad: NDArray[np.bool_]) -> str:
    """The first entry where ``bad`` is true, as text: its value and, in an array, its position."""
    where = np.argwhere(np.atleast_1d(bad))[0]
    value = float(np.atleast_1d(array)[tuple(where)])
    place = "" if array.ndim == 0 else f" at position {where[0] if where.size == 1 else tuple(where.tolist())}"
    return f"{value!r}{place}"


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from negwise.errors import InputError
from negwise.theory.separation import auc, separation, separation_se


@pytest.mark.parametrize(("value", "expected"), [(0.75, 0.954), (0.95, 2.326), (0.998, 4.070), (0.5, 0.0)])
def test_known_values(value, expected):
    assert separation(value) == pytest.approx(expected, abs=5e-4)


@pytest.mark.parametrize("mu", [-1.3, 0.0, 0.3, 1.0, 2.4, 4.5])
def test_closed_form_solves_the_papers_equation(mu):
    # Eq. 7 with the inner integral as a normal distribution function, by SciPy's quadrature.
    value, _ = integrate.quad(lambda x: stats.norm.pdf(x, mu) * stats.norm.cdf(x), mu - 12, mu + 12, epsabs=1e-13)
    assert auc(mu) == pytest.approx(value, abs=1e-12)


def test_closed_form_against_drawing():
    rng = np.random.default_rng(3)
    wins = np.mean(rng.normal(1.2, 1, 400_000) > rng.normal(0, 1, 400_000))
    assert auc(1.2) == pytest.approx(wins, abs=4 * math.sqrt(wins * (1 - wins) / 400_000))


@given(st.floats(1e-9, 1 - 1e-9))
def test_round_trip(value):
    assert auc(separation(value)) == pytest.approx(value, rel=1e-9)


def test_any_shape():
    grid = np.linspace(0.1, 0.9, 6).reshape(2, 3)
    assert separation(grid).shape == (2, 3)
    assert separation(grid).dtype == np.float64


def test_standard_error_is_the_slope():
    step = 1e-6
    slope = (separation(0.9 + step) - separation(0.9 - step)) / (2 * step)
    assert separation_se(0.9, 0.01) == pytest.approx(0.01 * slope, rel=1e-6)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, math.nan, math.inf, [0.5, 1.0], "high", None])
def test_bad_input_is_named(bad):
    with pytest.raises(InputError, match=r"auc: got .*expected"):
        separation(bad)


def test_tensors_of_any_precision_are_numbers():
    import torch

    wanted = torch.tensor([0.75, 0.875], requires_grad=True)
    np.testing.assert_allclose(separation(wanted), separation([0.75, 0.875]))
    np.testing.assert_allclose(separation(wanted.bfloat16()), separation([0.75, 0.875]))

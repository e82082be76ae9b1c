import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import reliability_30_digits, reliability_by_drawing
from scipy.special import owens_t

from negwise.errors import InputError
from negwise.theory.reliability import reliability, reliability_slope_k, reliability_slope_separation
from negwise.theory.separation import auc

separations = st.floats(-2, 8)
ks = st.one_of(st.floats(0, 10), st.floats(0, 1e6))

# Computed once by 30-digit quadrature outside this project.
PUBLISHED = [
    (1.0, 4.0, 0.493698862472735576),
    (2.4, 20.0, 0.683987638365737216),
    (4.5, 180.25, 0.950336766530791467),
    (4.5, 131072.0, 0.52297888345282652),
    (0.3, 65536.0, 5.3038771106902834e-05),
    (-2.0, 1e6, 8.99592275287781922e-12),
]


@pytest.mark.parametrize(("mu", "k", "expected"), PUBLISHED)
def test_reference_values(mu, k, expected):
    assert reliability(mu, k) == pytest.approx(expected, rel=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [-2.0, -0.7, 0.0, 1.0, 3.3, 5.5, 8.0])
@pytest.mark.parametrize("k", [0.37, 2.5, 19.0, 1234.5, 1e5, 1e6])  # 0 and 1 are exact cases, below
def test_against_30_digit_quadrature(mu, k):
    truth = reliability_30_digits(mu, k)
    assert abs(float((reliability(mu, k) - truth) / truth)) < 1e-13


@pytest.mark.parametrize(("mu", "k"), [(-2.0, 1e7), (3.0, 1e7), (8.0, 1e7), (-6.0, 1e3), (20.0, 1e6)])
def test_beyond_the_promised_corner(mu, k):
    truth = reliability_30_digits(mu, k)
    assert abs(float((reliability(mu, k) - truth) / truth)) < 1e-12


def test_exact_cases():
    k = np.array([0, 0.25, 1, 3.7, 50, 1e3, 1e6, 1e7])
    np.testing.assert_allclose(reliability(0.0, k), 1 / (k + 1), rtol=1e-13)
    mu = np.linspace(-2, 8, 41)
    np.testing.assert_allclose(reliability(mu, 1), auc(mu), rtol=1e-13)
    np.testing.assert_allclose(reliability(mu, 0), 1.0, rtol=1e-13)


def test_two_negatives_are_a_bivariate_normal():
    mu = np.linspace(-2, 8, 41)
    h = mu / math.sqrt(2)
    np.testing.assert_allclose(reliability(mu, 2), auc(mu) - 2 * owens_t(h, 1 / math.sqrt(3)), rtol=1e-12)


@pytest.mark.parametrize(("mu", "k"), [(0.0, 4), (1.0, 4), (2.4, 20), (3.0, 100)])
def test_against_drawing(mu, k):
    share, se = reliability_by_drawing(mu, k, 200_000, seed=int(10 * mu) + k)
    assert reliability(mu, k) == pytest.approx(share, abs=4 * se)


@given(separations, ks, ks)
@settings(max_examples=60, deadline=None)
def test_falls_with_k_within_bounds(mu, k, other):
    low, high = sorted((k, other))
    at_low, at_high = reliability(mu, [low, high])
    assert 0 <= at_high <= at_low * (1 + 1e-13) <= 1 + 1e-12


@given(separations, separations, ks)
@settings(max_examples=60, deadline=None)
def test_rises_with_separation(mu, other, k):
    low, high = sorted((mu, other))
    at_low, at_high = reliability([low, high], k)
    assert at_low <= at_high * (1 + 1e-13)


@pytest.mark.parametrize(("mu", "k"), [(0.5, 0.5), (1.0, 4.0), (2.4, 20.6), (4.5, 3000.0), (-1.0, 100.0)])
def test_slopes_against_differences(mu, k):
    # Central differences of the 30-digit reference: independent of our quadrature and of its derivative formulas.
    with mpmath.workdps(30):
        step = mpmath.mpf("1e-9")
        ups = (reliability_30_digits(mu, k + step), reliability_30_digits(mu + step, k))
        downs = (reliability_30_digits(mu, k - step), reliability_30_digits(mu - step, k))
        by_k, by_mu = ((up - down) / (2 * step) for up, down in zip(ups, downs, strict=True))
    assert reliability_slope_k(mu, k) == pytest.approx(float(by_k), rel=1e-10)
    assert reliability_slope_separation(mu, k) == pytest.approx(float(by_mu), rel=1e-10)


def test_slopes_of_exact_cases():
    k = np.array([0.5, 1, 7, 1e4])
    np.testing.assert_allclose(reliability_slope_k(0.0, k), -1 / (k + 1) ** 2, rtol=1e-12)
    mu = np.linspace(-2, 6, 9)
    density = np.exp(-(mu**2) / 4) / math.sqrt(4 * math.pi)  # the derivative of Phi(mu / sqrt 2)
    np.testing.assert_allclose(reliability_slope_separation(mu, 1), density, rtol=1e-12)
    np.testing.assert_allclose(reliability_slope_separation(mu, 0), 0.0)


def test_broadcasting_and_blocks_agree():
    mu, k = np.linspace(-2, 8, 130)[:, None], np.geomspace(1, 1e6, 140)
    table = reliability(mu, k)
    assert table.shape == (130, 140)
    pairs = reliability(*(side.ravel() for side in np.broadcast_arrays(mu, k)))  # large enough to go block by block
    np.testing.assert_allclose(pairs, table.ravel(), rtol=1e-14)
    assert reliability([], 3.0).shape == (0,)


def test_slopes_where_nothing_is_left_to_lose():
    assert reliability_slope_k(30.0, 4.0) == pytest.approx(0.0, abs=1e-90)
    assert reliability_slope_separation(30.0, 4.0) == pytest.approx(0.0, abs=1e-90)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(InputError, match=r"separation \(3,\), k \(4,\)"):
        reliability(np.ones(3), np.ones(4))


@pytest.mark.parametrize("k", [-1, -1e-9, 2e7, math.nan, math.inf, "four"])
def test_bad_k_is_named(k):
    with pytest.raises(InputError, match=r"k: got .*expected"):
        reliability(1.0, k)


@pytest.mark.parametrize("mu", [61.0, -1e9, math.nan])
def test_bad_separation_is_named(mu):
    with pytest.raises(InputError, match=r"separation: got .*expected"):
        reliability(mu, 1.0)

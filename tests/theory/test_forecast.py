import numpy as np
import pytest

from negwise.theory.forecast import forecast, still_rising


def rise(stop, n=30, asymptote=2.0, noise=0.0, seed=0):
    t = np.linspace(0, stop, n + 1)[1:]
    return t, asymptote * (1 - np.exp(-t)) + np.random.default_rng(seed).normal(0, noise, n)


def test_recovers_a_saturating_curve():
    t, y = rise(2.0)
    fit = forecast(t, y)
    assert fit.asymptote == pytest.approx(2.0, abs=0.02)
    assert fit.tau == pytest.approx(1.0, rel=0.05)
    assert fit.settles_at == pytest.approx(3.0, abs=0.1)
    np.testing.assert_allclose(fit.at(np.array([2.0, 2.5])), 2 * (1 - np.exp([-2.0, -2.5])), atol=0.02)


def test_the_stated_error_covers_the_truth():
    inside = 0
    for seed in range(200):
        t, y = rise(1.6, noise=0.02, seed=seed)
        fit = forecast(t, y)
        inside += abs(fit.asymptote - 2.0) < 1.645 * fit.se
    assert 0.80 <= inside / 200 <= 0.99


def test_a_straight_line_has_no_forecast_worth_the_name():
    t = np.arange(1.0, 21.0)
    fit = forecast(t, 0.05 * t + np.random.default_rng(1).normal(0, 0.01, 20))
    assert fit is None or fit.se > 0.1 * fit.asymptote


def test_too_few_points_and_falling_curves_give_none():
    assert forecast(np.arange(3.0), np.array([0.1, 0.5, 0.7])) is None
    assert forecast(np.arange(10.0), 2 - 0.1 * np.arange(10.0)) is None


@pytest.mark.parametrize(("stop", "expected"), [(1.0, True), (2.0, True), (3.0, True), (8.0, False)])
def test_still_rising(stop, expected):
    assert still_rising(*rise(stop)) is expected


def test_noise_on_a_plateau_is_no_rise():
    flagged = [
        still_rising(np.arange(20.0), 2 + np.random.default_rng(seed).normal(0, 0.05, 20)) for seed in range(200)
    ]
    assert np.mean(flagged) < 0.06


def test_it_goes_on_from_where_the_curve_ends_however_late_it_began():
    t, y = rise(2.0, noise=0.02)
    fit, late = forecast(t, y), forecast(t + 1e6, y)
    assert fit.at(t[-1:]) == pytest.approx(y[-1])
    np.testing.assert_allclose(late.at(np.array([2.0, 2.5, 9.0]) + 1e6), fit.at(np.array([2.0, 2.5, 9.0])), rtol=1e-4)
    assert fit.at(np.array([1e9])) == pytest.approx(fit.asymptote)

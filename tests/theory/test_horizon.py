import numpy as np
import pytest
from scipy.integrate import trapezoid

from negwise.theory.horizon import (
    chunk_starts,
    evaluation_noise,
    horizon_index,
    prepend_untrained,
    ramp,
    smooth,
    trapezoid_weights,
)


def test_smoothing_keeps_lines_and_matches_least_squares():
    numbers = np.arange(60.0)
    np.testing.assert_allclose(smooth(2 + 0.3 * numbers), 2 + 0.3 * numbers, atol=1e-10)
    values = np.random.default_rng(1).normal(size=60)
    for at in (0, 1, 30, 58, 59):
        window = slice(max(at - 3, 0), at + 4)
        line = np.polyfit(numbers[window], values[window], 1)
        assert smooth(values)[at] == pytest.approx(np.polyval(line, at), abs=1e-10)


def test_smoothing_a_long_curve_keeps_its_digits():
    values = 4 + 1e-3 * np.sin(np.arange(50_000.0) / 900)
    at = 31_234
    line = np.polyfit(np.arange(-2500.0, 2501.0), values[at - 2500 : at + 2501], 1)
    assert smooth(values)[at] == pytest.approx(np.polyval(line, 0.0), abs=1e-11)


def test_short_curves_are_left_alone():
    np.testing.assert_array_equal(smooth(np.array([1.0, 3.0, 2.0, 5.0])), [1, 3, 2, 5])


def test_horizon_of_the_papers_curve_is_its_own_t_three():
    t = np.linspace(0, 8, 801)
    assert t[horizon_index(1 - np.exp(-t))] == pytest.approx(3.0, abs=0.01)
    assert t[horizon_index(1 - np.exp(-t), 0.90)] == pytest.approx(np.log(10), abs=0.02)


def test_horizon_comes_before_overfitting():
    values = np.array([0.2, 0.6, 0.93, 0.99, 1.0, 0.9, 0.7])
    assert horizon_index(values) == 3
    assert horizon_index(np.array([-0.5, -0.2, -0.4])) == 1


def test_weights_are_scipys_trapezoid():
    steps = np.array([0.0, 1.0, 4.0, 10.0])
    values = np.array([3.0, -1.0, 2.0, 5.0])
    assert trapezoid_weights(steps) @ values == pytest.approx(trapezoid(values, steps) / 10)
    np.testing.assert_array_equal(trapezoid_weights(np.array([7.0])), [1.0])


def test_evaluation_noise_is_what_evaluations_do_not_share():
    rng = np.random.default_rng(4)
    steps = np.cumsum(rng.uniform(0.5, 2, 400))
    shared = rng.normal()  # moves all of them alike, and must not count
    noisy = 2 - 2 * np.exp(-steps / 100) + shared + rng.normal(0, 0.05, 400)
    assert evaluation_noise(steps, noisy) == pytest.approx(0.05, rel=0.15)
    assert evaluation_noise(steps, 3 + 0.2 * steps) == pytest.approx(0.0, abs=1e-12)
    assert evaluation_noise(steps[:4], noisy[:4]) == 0.0


def test_an_untrained_model_is_put_in_front_once():
    assert prepend_untrained(np.array([5.0]), np.array([1.0]))[0].tolist() == [0.0, 5.0]
    assert prepend_untrained(np.array([0.0, 5.0]), np.array([0.1, 1.0]))[1].tolist() == [0.1, 1.0]


def test_ramp_against_a_fine_riemann_sum():
    mu, weights = ramp(2.0)
    t = np.linspace(0, 3, 300_001)
    plain = trapezoid((2.0 * (1 - np.exp(-t)) / (1 - np.exp(-3))) ** 2, t) / 3
    assert weights @ mu**2 == pytest.approx(plain, rel=1e-9)
    assert weights.sum() == pytest.approx(1.0)


def test_chunks_cover_a_long_curve_evenly():
    starts = chunk_starts(1000, 256)
    assert starts[0] == 0
    assert starts.size == 256
    assert set(np.diff(np.append(starts, 1000)).tolist()) <= {3, 4}
    assert chunk_starts(5, 256).tolist() == [0, 1, 2, 3, 4]

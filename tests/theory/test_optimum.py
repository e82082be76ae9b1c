import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.optimize import minimize_scalar

from negwise.theory.effectiveness import effectiveness, mean_effectiveness
from negwise.theory.empirical_reliability import score_ranks
from negwise.theory.model_reliability import (
    empirical_from_curve,
    empirical_from_ramp,
    reliability_from_curve,
    reliability_from_ramp,
)
from negwise.theory.optimum import k_grid, optimum, peaks
from negwise.theory.reliability import reliability


def simulated(mu, lam=0.9, max_k=1e6):
    return optimum(lambda k: reliability(mu, k), reliability_from_ramp(mu * (1 - np.exp(-3))), lam, max_k)


# The mean of v over the paper's curve, t in [0, 3], taken as an integral.
@pytest.mark.parametrize(
    ("mu", "k", "flat"),
    [(1.0, 4.48, (3, 7)), (2.4, 20.72, (13, 34)), (4.07, 936.3, (443, 2034)), (4.5, 3713.5, (1601, 8805))],
)
def test_optima_of_the_simulated_curve(mu, k, flat):
    best = simulated(mu)
    assert best.k == pytest.approx(k, rel=1e-3)
    assert best.flat == flat


@pytest.mark.parametrize(("lam", "k"), [(0.8, 285.8), (0.85, 14.93), (0.9, 4.48), (0.95, 3.75), (0.99, 3.56)])
def test_optimum_depends_on_lambda(lam, k):
    assert simulated(1.0, lam).k == pytest.approx(k, rel=2e-3)


def test_four_and_five_tie_at_separation_one():
    t = np.linspace(0, 3, 30_001)
    v = np.array([trapezoid(effectiveness(1.0, 1 - np.exp(-t), k), t) / 3 for k in (4, 5)])
    assert abs(v[0] - v[1]) < 1e-5
    assert simulated(1.0).k_int == 4 + int(np.argmax(v))


@pytest.mark.parametrize("mu", [0.3, 0.8, 1.7, 3.0])
def test_against_scipys_optimiser_on_the_paper_as_a_sum(mu):
    t = np.linspace(0, 3, 3001)

    def loss(log_k):
        return -trapezoid(effectiveness(mu, mu * (1 - np.exp(-t)), np.exp(log_k)), t) / 3

    best = simulated(mu)
    found = minimize_scalar(loss, bounds=(np.log(best.k) - 1, np.log(best.k) + 1), options={"xatol": 1e-6})
    assert best.k == pytest.approx(np.exp(found.x), rel=2e-3)
    assert best.value == pytest.approx(-found.fun, abs=1e-6)


def test_flat_is_exactly_the_connected_range_within_one_percent():
    best = simulated(2.4)
    model = reliability_from_ramp(2.4 * (1 - np.exp(-3)))
    k = np.arange(1.0, 200.0)
    good = mean_effectiveness(reliability(2.4, k), model(k), 0.9) >= 0.99 * best.value
    assert best.flat == (int(k[good].min()), int(k[good].max()))


def test_open_ends():
    assert simulated(0.3).flat == (51, None)  # v comes down to its limit so slowly that it never leaves the one percent
    capped = simulated(4.5, max_k=50)
    assert capped.at_end
    assert capped.k == 50
    assert capped.flat[1] is None
    assert not simulated(2.4).at_end


def test_the_stage_wise_optimum_rises_over_most_of_training():
    found = []
    for model in (0.0, 1.0, 2.0, 2.2):
        side = reliability_from_curve(np.array([0.0]), np.array([model]), 0)
        found.append(optimum(lambda k: reliability(2.4, k), side, 0.9, 1e6).k)
    assert [round(k) for k in found] == [7, 18, 65, 265]


def test_peaks_of_a_table_agree_with_the_sharp_search():
    ks = k_grid(1e6, 24)
    label = reliability(np.array([1.0, 2.4, 4.0])[:, None], ks)
    model = np.stack([reliability_from_ramp(mu * (1 - np.exp(-3)))(ks) for mu in (1.0, 2.4, 4.0)])
    np.testing.assert_allclose(
        peaks(mean_effectiveness(label, model, 0.9), ks), [simulated(mu).k for mu in (1.0, 2.4, 4.0)], rtol=2e-3
    )


def test_a_peak_at_the_end_of_the_grid_is_exactly_there():
    ks = k_grid(1e6, 24)
    assert peaks(np.stack([ks, -ks]), ks).tolist() == [1e6, 1.0]


def test_uneven_steps_are_weighted_by_their_length():
    steps, mu = np.array([10.0, 20.0, 100.0]), np.array([0.5, 1.0, 2.0])
    dense = np.interp(np.linspace(0, 100, 10_001), [0, 10, 20, 100], [0, 0.5, 1, 2])
    k = np.array([1.0, 10.0])
    plain = (
        trapezoid(np.interp(np.linspace(0, 100, 10_001), [0, 10, 20, 100], reliability([0, 0.5, 1, 2], 10.0)), dx=0.01)
        / 100
    )
    assert reliability_from_curve(steps, mu, 2)(k)[1] == pytest.approx(plain, rel=1e-9)
    assert dense[-1] == 2.0


def test_a_shift_moves_measured_points_and_not_the_untrained_one():
    side = reliability_from_curve(np.array([10.0, 20.0]), np.array([0.5, 1.0]), 1)
    k = np.array([3.0])
    expected = [
        0.25 * reliability(0, 3) + 0.5 * reliability(0.5 + d, 3) + 0.25 * reliability(1 + d, 3) for d in (-0.1, 0.2)
    ]
    np.testing.assert_allclose(side.shifted(np.array([-0.1, 0.2]), k)[:, 0], expected, rtol=1e-12)


def test_shifts_of_a_long_curve_are_close_to_exact():
    steps = np.arange(1.0, 5001.0)
    mu = 2.4 * (1 - np.exp(-steps / 1000))
    side = reliability_from_curve(steps, mu, 4999)
    k = np.array([1.0, 20.0, 1e4])
    exact = reliability_from_curve(steps, mu + 0.1, 4999)(k)
    np.testing.assert_allclose(side.shifted(np.array([0.1]), k)[0], exact, rtol=1e-3)


def test_ranks_of_gaussian_scores_agree_with_the_gaussian():
    rng = np.random.default_rng(5)
    ranks = [score_ranks(rng.normal(mu, 1, 20_000), rng.standard_normal((20_000, 40))) for mu in (0.7, 1.5)]
    steps, k = np.array([1.0, 2.0]), np.array([1.0, 4.0, 30.0])
    gaussian = reliability_from_curve(steps, np.array([0.7, 1.5]), 1)(k)
    np.testing.assert_allclose(empirical_from_curve(steps, ranks, 1)(k), gaussian, atol=0.01)
    np.testing.assert_allclose(empirical_from_ramp(1.5, ranks[1])(k), reliability_from_ramp(1.5)(k), atol=0.01)

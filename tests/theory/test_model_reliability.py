import numpy as np
import pytest

from negwise.theory.model_reliability import expected_power, expected_power_every_k, mixture_density
from negwise.theory.reliability import grid_for, reliability


@pytest.mark.parametrize("seed", range(3))
def test_a_mixture_is_the_weighted_mean_of_reliabilities(seed):
    rng = np.random.default_rng(seed)
    mu, weights = rng.uniform(-2, 8, 57), rng.dirichlet(np.ones(57))
    k = np.array([0, 0.5, 1, 4, 180.25, 1e4, 1e6, 1e7])
    nodes, log_cdf = grid_for(mu)
    density = mixture_density(mu, weights, nodes)
    plain = (weights[:, None] * reliability(mu[:, None], k)).sum(axis=0)
    np.testing.assert_allclose(expected_power(density, log_cdf, k), plain, rtol=1e-13)


def test_the_density_itself_against_scipy():
    from scipy.stats import norm

    mu, weights = np.array([-9.0, 0.3, 9.5]), np.array([0.2, 0.5, 0.3])
    nodes, _ = grid_for(mu)
    plain = (norm.pdf(nodes[:, None] - mu) @ weights) * (nodes[1] - nodes[0])
    np.testing.assert_allclose(mixture_density(mu, weights, nodes), plain, rtol=1e-11)


def test_long_curves_go_block_by_block():
    mu = np.linspace(0, 3, 5000)
    weights = np.full(5000, 1 / 5000)
    nodes, log_cdf = grid_for(mu)
    k = np.array([1.0, 20.0])
    whole = expected_power(mixture_density(mu, weights, nodes), log_cdf, k)
    np.testing.assert_allclose(whole, reliability(mu[:, None], k).mean(axis=0), rtol=1e-13)


@pytest.mark.parametrize("max_k", [1, 2, 3, 10, 1000, 131_072])
def test_every_k_equals_one_power_per_k(max_k):
    mu, weights = np.array([0.2, 1.0, 2.4]), np.array([0.5, 0.25, 0.25])
    nodes, log_cdf = grid_for(mu)
    density = mixture_density(mu, weights, nodes)
    every = expected_power_every_k(density, log_cdf, max_k)
    assert every.shape == (max_k + 1,)
    some = np.unique(np.linspace(0, max_k, 300).astype(int))
    np.testing.assert_allclose(every[some], expected_power(density, log_cdf, some.astype(float)), rtol=1e-12)

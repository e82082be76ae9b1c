import numpy as np
import pytest
from pilots import curves

import negwise as nw
from negwise.theory.interval import auc_se_from_counts
from negwise.theory.optimum import k_grid
from negwise.theory.separation import separation_se


@pytest.mark.parametrize(("mu", "negatives"), [(0.5, 1), (1.0, 20), (2.4, 100)])
def test_standard_error_from_counts_against_drawing(mu, negatives):
    rng = np.random.default_rng(int(10 * mu))
    queries = 200
    aucs = [(rng.standard_normal((queries, negatives)) < rng.normal(mu, 1, (queries, 1))).mean() for _ in range(2000)]
    told = auc_se_from_counts(np.array(mu), np.array(queries), np.array(queries * negatives))
    assert told == pytest.approx(np.std(aucs), rel=0.07)


def test_standard_errors_go_before_counts_and_narrow_with_queries():
    t, train, val = curves()

    def width(**counts):
        low, high = nw.optimal_k(train, val, steps=t, **counts).interval
        return high / low

    assert width(n_queries=20_000, n_pairs=2_000_000) < width(n_queries=2000, n_pairs=200_000)
    assert width(n_queries=2000, n_pairs=200_000) < width(n_queries=2000)
    assert width(train_se=0.001, val_se=0.001) < width(train_se=0.004, val_se=0.004)


def test_a_simulated_model_follows_its_label():
    few = nw.optimal_k(0.95, n_queries=500, n_pairs=50_000)
    se = float(auc_se_from_counts(np.array(few.label_separation), np.array(500), np.array(50_000)))
    shift = 1.645 * float(separation_se(0.95, se))
    ends = [nw.optimal_k(float(nw.auc(few.label_separation + d))).k for d in (-shift, shift)]
    np.testing.assert_allclose(few.interval, ends, rtol=0.05)


def test_grid_of_k_spans_the_search():
    assert k_grid(1e6)[0] == 1
    assert k_grid(1e6)[-1] == pytest.approx(1e6)

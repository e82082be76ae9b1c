import numpy as np
import pytest
from pilots import curves

import negwise as nw


def test_ok():
    t, train, val = curves()
    found = nw.optimal_k(train, val, steps=t, n_queries=3000, n_pairs=300_000)
    assert found.verdict == "ok"
    assert found.interval[0] < found.k < found.interval[1]
    assert found.flat[0] <= found.k_int <= found.flat[1]
    assert found.margin == pytest.approx(max(found.curve.v) - 0.1, abs=1e-4)


def test_vacuous_when_nothing_is_gained():
    found = nw.optimal_k(float(nw.auc(0.3)))
    assert found.verdict == "vacuous"
    assert found.margin == pytest.approx(0.0001, abs=2e-5)
    assert found.k == pytest.approx(490.5, rel=1e-3)


def test_vacuous_at_lambda_one_half_says_why():
    found = nw.optimal_k(0.75, lam=0.5)
    assert found.verdict == "vacuous"
    assert "At lambda 0.5 no K ever gains anything" in found.reasons[0]


def test_vacuous_when_there_is_no_rise():
    found = nw.optimal_k(0.9, [0.8, 0.79, 0.78], steps=[0, 1, 2])
    assert found.verdict == "vacuous"
    assert "before training starts" in found.reasons[0]


def test_vacuous_when_the_draws_run_to_the_end():
    found = nw.optimal_k(float(nw.auc(0.75)), float(nw.auc(0.65)), n_queries=60, n_pairs=6000)
    assert found.margin > 0.01
    assert found.verdict == "vacuous"
    assert "end of the search" in found.reasons[0]


def test_capped_at_the_end_of_the_search():
    found = nw.optimal_k(0.998, max_k=50)
    assert found.verdict == "capped"
    assert found.k == 50
    assert found.flat[1] is None
    assert "Raise max_k" in found.reasons[0]


def test_capped_by_the_negatives_that_were_scored():
    rng = np.random.default_rng(0)
    found = nw.optimal_k(0.998, val_scores=(rng.normal(3, 1, 3000), rng.standard_normal((3000, 20))))
    assert found.verdict == "capped"
    assert "score more of them" in found.reasons[0]


def test_capped_by_a_wide_interval():
    found = nw.optimal_k(0.998, 0.99, n_queries=100, n_pairs=1000)
    assert found.verdict == "capped"
    assert "factor of ten" in found.reasons[0]


def test_inconsistent_validation_above_training():
    found = nw.optimal_k(0.70, [0.6, 0.7, 0.8], steps=[1, 2, 3])
    assert found.verdict == "inconsistent"
    assert "above training" in found.reasons[0]
    # The same gap is noise with few queries, and is not with many.
    assert nw.optimal_k(0.80, 0.815, n_queries=150).verdict != "inconsistent"
    assert nw.optimal_k(0.80, 0.815, n_queries=50_000).verdict == "inconsistent"


def test_inconsistent_below_chance():
    found = nw.optimal_k(0.8, [0.42, 0.6, 0.7], steps=[1, 2, 3])
    assert found.verdict == "inconsistent"
    assert "below 0.5" in found.reasons[0]
    assert "step 1" in found.reasons[0]
    assert nw.optimal_k(0.4, 0.45).verdict == "inconsistent"
    assert nw.optimal_k(0.8, [0.495, 0.6, 0.7], steps=[1, 2, 3]).verdict == "ok"


def test_a_model_that_has_not_learned_may_stand_on_either_side_of_chance():
    assert nw.optimal_k(0.8, [0.42, 0.6, 0.7], steps=[0, 1, 2]).verdict == "ok"
    assert nw.optimal_k([0.45, 0.7, 0.8], [0.42, 0.6, 0.7], steps=[0, 1, 2]).verdict == "ok"


def test_inconsistent_curves_that_do_not_overlap():
    t = np.arange(1.0, 11.0)
    rise = nw.auc(2 * (1 - np.exp(-t / 2)))
    found = nw.optimal_k(rise, rise - 0.01, steps=t + 1000, train_steps=t)
    assert found.verdict == "inconsistent"
    assert "share less than a tenth" in found.reasons[0]
    # Training logged for half of the run only is no contradiction, but a reason says so.
    early = nw.optimal_k(rise[:5], rise - 0.01, steps=t, train_steps=t[:5])
    assert early.verdict != "inconsistent"
    assert any("after the last training AUC" in reason for reason in early.reasons)

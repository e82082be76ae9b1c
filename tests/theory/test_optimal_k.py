import math

import numpy as np
import pytest
from pilots import curves

import negwise as nw
from negwise.errors import InputError
from negwise.theory.empirical_reliability import score_ranks


def test_training_auc_alone_is_the_simulated_curve_and_says_so():
    found = nw.optimal_k(0.9552)
    assert found.k == pytest.approx(20.74, abs=0.02)
    assert found.source == "simulated"
    assert "simulated" in found.reasons[0]
    assert found.interval is None
    assert any("n_queries" in reason for reason in found.reasons)


def test_a_pair_is_the_end_of_a_ramp_never_a_constant():
    mu = 2.4
    pair = nw.optimal_k(float(nw.auc(mu)), float(nw.auc(mu * (1 - math.exp(-3)))))
    assert pair.k == pytest.approx(nw.optimal_k(float(nw.auc(mu))).k, rel=1e-6)
    assert pair.source == "pair"


def test_a_dense_curve_of_the_papers_shape_gives_the_papers_optimum():
    # T is where the curve has 95% of its peak: on a curve that goes on to t = 9, the paper's own t = 3.
    t = np.linspace(0, 9, 6001)
    found = nw.optimal_k(float(nw.auc(2.4)), nw.auc(2.4 * (1 - np.exp(-t))), steps=t)
    assert found.horizon == pytest.approx(3.0, abs=0.05)
    assert found.k == pytest.approx(20.72, rel=5e-3)


def test_uneven_steps_give_the_same_answer_as_even_ones():
    t = np.linspace(0, 9, 1801)
    keep = np.unique(np.r_[np.arange(0, 900, 2), np.arange(900, 1801, 30)])
    even = nw.optimal_k(0.95, nw.auc(2.2 * (1 - np.exp(-t))), steps=t)
    uneven = nw.optimal_k(0.95, nw.auc(2.2 * (1 - np.exp(-t[keep]))), steps=t[keep])
    assert uneven.k == pytest.approx(even.k, rel=0.01)


def test_curves_logged_at_different_steps():
    t, train, val = curves()
    every = nw.optimal_k(train, val, steps=t)
    sparse = nw.optimal_k(train[1::2], val, steps=t, train_steps=t[1::2])
    assert sparse.k == pytest.approx(every.k, rel=0.01)
    assert sparse.label_step == every.label_step


def test_scores_need_no_gaussian_and_agree_with_one_where_there_is_one():
    rng = np.random.default_rng(1)
    scores = (rng.normal(1.5, 1, 5000), rng.standard_normal((5000, 200)))
    by_scores = nw.optimal_k(0.9, val_scores=scores)
    by_auc = nw.optimal_k(0.9, val_auc=float(nw.auc(1.5)), max_k=200)
    assert by_scores.k == pytest.approx(by_auc.k, rel=0.15)
    assert by_scores.max_k == 200
    # Any rising function of the scores leaves ranks, hence the answer, as they are.
    moved = nw.optimal_k(0.9, val_scores=(np.exp(scores[0]), np.exp(scores[1])))
    assert moved.k == by_scores.k


def test_heavy_tails_are_seen_by_ranks_only():
    rng = np.random.default_rng(2)
    positives, negatives = 2.0 + rng.standard_t(2, 4000), rng.standard_t(2, (4000, 300))
    scores = [(0.5 * positives, negatives), (positives, negatives)]
    by_ranks = nw.optimal_k(0.93, val_scores=scores, steps=[1, 2])
    aucs = [float(score_ranks(p, n).shares.mean()) for p, n in scores]
    by_gauss = nw.optimal_k(0.93, aucs, steps=[1, 2], max_k=300)
    assert abs(math.log(by_ranks.k / by_gauss.k)) > 0.1


def test_scores_of_training_give_its_auc_and_error():
    rng = np.random.default_rng(3)
    train = (rng.normal(2, 1, 3000), rng.standard_normal((3000, 50)))
    found = nw.optimal_k(train_scores=train, val_scores=(rng.normal(1.5, 1, 3000), rng.standard_normal((3000, 50))))
    assert found.label_separation == pytest.approx(2.0, abs=0.1)
    assert found.interval is not None


def test_the_label_is_read_where_validation_peaks():
    t = np.arange(1.0, 41.0)
    train = nw.auc(3.0 * (1 - np.exp(-t / 12)))
    val = nw.auc(1.8 * (1 - np.exp(-t / 5)) - 0.03 * np.maximum(t - 16, 0))
    found = nw.optimal_k(train, val, steps=t)
    assert 14 <= found.label_step <= 18
    assert found.label_separation == pytest.approx(3.0 * (1 - math.exp(-found.label_step / 12)), rel=0.02)
    assert found.basis == "measured"
    assert any("Validation peaks at step" in reason for reason in found.reasons)


def test_a_rising_training_auc_is_forecast():
    t, train, val = curves(stop=1400, n=28)
    found = nw.optimal_k(train, val, steps=t)
    whole = nw.optimal_k(*curves(stop=7000, n=140)[1:], steps=curves(stop=7000, n=140)[0])
    assert found.basis == "forecast"
    assert found.rising.k_measured < 0.75 * whole.k
    assert found.k == found.rising.k_forecast == pytest.approx(whole.k, rel=0.1)
    assert found.label_separation == pytest.approx(2.4, rel=0.02)
    # 95% of the asymptote is at three time constants.
    assert found.rising.more_steps == pytest.approx(3 * 700 - 1400, rel=0.15)
    assert "lower bound" in found.reasons[0]


def test_a_rise_that_cannot_be_forecast_is_a_lower_bound():
    t, train, val = curves(stop=500, n=10, noise=0.01)
    found = nw.optimal_k(train, val, steps=t)
    assert found.basis == "lower bound"
    assert found.rising.k_forecast is None
    assert "Train at least as long again" in found.reasons[0]
    assert found.headline().startswith("Train with at least K")


def test_a_forecast_label_never_goes_with_a_validation_of_today():
    # Validation still rises too, and is too noisy to be forecast: nothing is.
    t, train, _ = curves(stop=1400, n=28)
    _, _, val = curves(stop=1400, n=28, noise=0.25, seed=4)
    found = nw.optimal_k(train, np.sort(val), steps=t)
    assert found.basis in ("lower bound", "unsettled")
    assert found.label_step == 1400
    t = np.linspace(0, 600, 13)[1:]
    rise = 0.6 * (1 - np.exp(-t / 700))
    short = nw.optimal_k(nw.auc(rise), nw.auc(0.9 * rise), steps=t)
    whole = np.linspace(0, 7000, 141)[1:]
    rise = 0.6 * (1 - np.exp(-whole / 700))
    long = nw.optimal_k(nw.auc(rise), nw.auc(0.9 * rise), steps=whole)
    assert short.basis != "forecast" or short.k == pytest.approx(long.k, rel=0.25)


def test_no_lower_bound_where_k_falls_with_the_label():
    t = np.linspace(0, 400, 13)[1:]
    rise = 0.7 * (1 - np.exp(-t / 700))
    found = nw.optimal_k(nw.auc(rise), nw.auc(0.5 * rise), steps=t)
    assert found.basis in ("unsettled", "forecast")
    assert "a lower bound" not in found.reasons[0]
    assert "at least" not in found.headline()


def test_a_forecast_is_not_said_to_be_read_at_a_step():
    t, train, val = curves(stop=1400, n=28)
    found = nw.optimal_k(train, val, steps=t)
    assert found.label_step is None
    assert dict(found.facts())["label separation"].endswith("forecast")


def test_two_evaluations_cannot_show_convergence():
    found = nw.optimal_k([0.6, 0.8], [0.55, 0.7], steps=[100, 200])
    assert any("cannot show whether training had converged" in reason for reason in found.reasons)


def test_a_converged_pilot_is_measured():
    t, train, val = curves(stop=7000, n=70, noise=0.01)
    found = nw.optimal_k(train, val, steps=t)
    assert found.basis == "measured"
    assert found.rising is None


def test_sensitivity_is_shown():
    t, train, val = curves()
    found = nw.optimal_k(train, val, steps=t)
    assert list(found.k_by_horizon) == ["90%", "99%"]
    assert list(found.k_by_lam) == ["0.8", "0.85", "0.9", "0.95", "0.99"]
    assert found.k_by_lam["0.9"] == pytest.approx(found.k, rel=1e-3)
    assert found.k_by_lam["0.95"] == pytest.approx(nw.optimal_k(train, val, steps=t, lam=0.95).k, rel=1e-3)


BAD = [
    ({}, "train_auc: got nothing"),
    ({"train_auc": 1.0}, "train_auc: got 1.0"),
    ({"train_auc": 0.0}, "train_auc: got 0.0"),
    ({"train_auc": math.nan}, "train_auc: got nan"),
    ({"train_auc": 75.0}, "pass 0.75"),
    ({"train_auc": -0.2}, "between 0 and 1"),
    ({"train_auc": []}, "empty curve"),
    ({"train_auc": [[0.6]]}, "got shape"),
    ({"train_auc": "high"}, "expected a number"),
    ({"train_auc": 0.8, "val_auc": [0.6, 1.0]}, "val_auc: got 1.0 at position 1"),
    ({"train_auc": 0.8, "val_auc": []}, "val_auc: got an empty curve"),
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [1, 2, 3]}, "got 3 for 2 values"),
    ({"train_auc": [0.6, 0.7], "val_auc": [0.6, 0.7, 0.7], "steps": [1, 2, 3]}, "pass train_steps"),
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [2, 2]}, "expected increasing"),
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [-1, 2]}, "numbers of 0 or more"),
    ({"train_auc": 0.8, "lam": 0.3}, "lam: got 0.3"),
    ({"train_auc": 0.8, "max_k": 1}, "from 2 to 1e7"),
    ({"train_auc": 0.8, "max_k": 1e9}, "from 2 to 1e7"),
    ({"train_auc": 0.8, "n_queries": 1}, "at least 2"),
    ({"train_auc": 0.8, "n_pairs": 100}, "Pass n_queries"),
    ({"train_auc": 0.8, "n_queries": 100, "n_pairs": 50}, "the number of queries"),
    ({"train_auc": 0.8, "n_queries": [10, 20]}, "got 2 counts for 1"),
    ({"train_auc": 0.8, "train_se": -0.1}, "errors of 0 or more"),
    ({"train_auc": [0.7, [0.8]]}, "train_auc: got"),
    ({"train_auc": 0.8, "max_k": [10, 20]}, "expected one number"),
    ({"train_auc": 0.8, "val_scores": 5}, "expected a tuple"),
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [[1, 2]]}, "steps: got shape"),
    ({"train_auc": 0.8, "train_se": [0.1, 0.2]}, "got 2 values for 1"),
    ({"train_auc": 0.8, "train_scores": ([1.0], [0.0])}, "got both"),
    ({"train_auc": 0.8, "val_scores": ([1.0, 2.0], [1.5])}, "expected at least 2"),
    ({"train_auc": 0.8, "val_scores": ([2.0, 0.5], [0.0, 1.0]), "max_k": 10}, "2 negatives for each positive"),
    ({"train_auc": 0.8, "val_scores": [1, 2]}, "expected a tuple"),
    ({"train_auc": 0.8, "val_scores": ([2.0, 3.0], [0.0, 1.0])}, "perfect ranking"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_errors_say_what_came_and_what_to_type(arguments, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        nw.optimal_k(**arguments)


def test_counts_of_training_are_taken_where_there_is_no_validation():
    own = nw.optimal_k(0.75, train_queries=1000, train_pairs=20_000)
    assert own.interval == nw.optimal_k(0.75, n_queries=1000, n_pairs=20_000).interval is not None
    assert own.interval == nw.optimal_k(0.75, train_queries=1000, train_pairs=20_000, n_queries=5, n_pairs=9).interval


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"steps": [1, 2, 3]}, "steps: got steps, but no curve"),
        ({"val_se": 0.01}, "val_se: got an error of validation, but no val_auc"),
        ({"train_steps": [1, 2, 3]}, "train_steps: got steps for a single train_auc"),
    ],
)
def test_what_would_be_ignored_is_refused(more, says):
    with pytest.raises(InputError, match=says):
        nw.optimal_k(0.9, **more)


def test_counts_of_each_evaluation_against_one_number():
    with pytest.raises(InputError, match=r"n_pairs: got 150\.0 at position 1, expected at least"):
        nw.optimal_k(0.8, [0.6, 0.7], steps=[1, 2], n_queries=[100, 200], n_pairs=150)


def test_a_curve_without_steps_says_that_it_is_taken_as_even():
    even = nw.optimal_k(0.96, [0.7, 0.8, 0.85, 0.86])
    assert any("evenly spaced" in reason for reason in even.reasons)
    for given in (nw.optimal_k(0.96, [0.7, 0.8, 0.85, 0.86], steps=[1, 2, 4, 8]), nw.optimal_k(0.96, 0.86)):
        assert not any("evenly spaced" in reason for reason in given.reasons)

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import negwise as nw
from negwise.errors import InputError
from negwise.theory.estimate import Estimate
from negwise.theory.noise import auc_se_from_counts
from negwise.theory.optimum import k_grid
from negwise.theory.ranks import ranks
from negwise.theory.separation import separation_se


def curves(mu=2.4, ratio=0.9, tau=700.0, stop=4000, n=40, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, stop, n + 1)[1:]
    rise = mu * (1 - np.exp(-t / tau))
    train = nw.auc(rise + rng.normal(0, noise, n))
    return t, train, nw.auc(ratio * rise + rng.normal(0, noise, n))


# --- what goes in -----------------------------------------------------------------------------------------------


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
    aucs = [float(ranks(p, n).shares.mean()) for p, n in scores]
    by_gauss = nw.optimal_k(0.93, aucs, steps=[1, 2], max_k=300)
    assert abs(math.log(by_ranks.k / by_gauss.k)) > 0.1


def test_scores_of_training_give_its_auc_and_error():
    rng = np.random.default_rng(3)
    train = (rng.normal(2, 1, 3000), rng.standard_normal((3000, 50)))
    found = nw.optimal_k(train_scores=train, val_scores=(rng.normal(1.5, 1, 3000), rng.standard_normal((3000, 50))))
    assert found.label_separation == pytest.approx(2.0, abs=0.1)
    assert found.interval is not None


# --- what is read from the curves ----------------------------------------------------------------------------------


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


# --- verdicts ------------------------------------------------------------------------------------------------------


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


def test_inconsistent_curves_that_do_not_overlap():
    t = np.arange(1.0, 11.0)
    rise = nw.auc(2 * (1 - np.exp(-t / 2)))
    found = nw.optimal_k(rise, rise - 0.01, steps=t + 1000, train_steps=t)
    assert found.verdict == "inconsistent"
    assert "share less than a tenth" in found.reasons[0]
    # Training logged for half of the run only is no contradiction, but is told.
    early = nw.optimal_k(rise[:5], rise - 0.01, steps=t, train_steps=t[:5])
    assert early.verdict != "inconsistent"
    assert any("after the last training AUC" in reason for reason in early.reasons)


# --- errors --------------------------------------------------------------------------------------------------------

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
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [2, 2]}, "expected rising"),
    ({"train_auc": 0.8, "val_auc": [0.6, 0.7], "steps": [-1, 2]}, "from 0 up"),
    ({"train_auc": 0.8, "lam": 0.3}, "lam: got 0.3"),
    ({"train_auc": 0.8, "max_k": 1}, "from 2 to 1e7"),
    ({"train_auc": 0.8, "max_k": 1e9}, "from 2 to 1e7"),
    ({"train_auc": 0.8, "n_queries": 1}, "at least 2"),
    ({"train_auc": 0.8, "n_pairs": 100}, "Pass n_queries"),
    ({"train_auc": 0.8, "n_queries": 100, "n_pairs": 50}, "the number of queries"),
    ({"train_auc": 0.8, "n_queries": [10, 20]}, "got 2 counts for 1"),
    ({"train_auc": 0.8, "train_se": -0.1}, "from 0 up"),
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


# --- the result ----------------------------------------------------------------------------------------------------

estimates = st.builds(
    nw.optimal_k,
    train_auc=st.floats(0.51, 0.999),
    val_auc=st.one_of(st.none(), st.floats(0.51, 0.99), st.lists(st.floats(0.4, 0.99), min_size=2, max_size=9)),
    n_queries=st.one_of(st.none(), st.integers(10, 10_000)),
    lam=st.floats(0.5, 1.0),
    max_k=st.one_of(st.none(), st.floats(2, 1e5)),
)


@given(estimates)
@settings(max_examples=60, deadline=None)
def test_any_estimate_round_trips_and_is_well_formed(found):
    assert Estimate.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert 1 <= found.k <= found.max_k
    assert abs(found.k_int - found.k) <= 1
    assert found.flat[0] <= found.k_int
    assert found.flat[1] is None or found.flat[1] >= found.k_int
    assert found.verdict in ("ok", "vacuous", "capped", "inconsistent")
    assert found.interval is None or found.interval[0] <= found.k <= found.interval[1]
    assert found.explain()
    assert "Estimate(k=" in repr(found)


def test_from_dict_names_what_is_missing():
    data = nw.optimal_k(0.8).to_dict()
    del data["k"]
    with pytest.raises(InputError, match=r"missing \['k'\]"):
        Estimate.from_dict(data)
    with pytest.raises(InputError, match="to_dict"):
        Estimate.from_dict([1])
    for part in ("curve", "pilot", "rising"):
        with pytest.raises(InputError, match=f"{part}: missing"):
            Estimate.from_dict({**nw.optimal_k(0.8).to_dict(), part: {"x": 1}})


def test_repr_and_explain_read_well():
    t, train, val = curves()
    found = nw.optimal_k(train, val, steps=t, n_queries=3000)
    assert repr(found).startswith("Estimate(k=")
    assert "interval=" in repr(found)
    text = found.explain()
    for part in ("as good", "90% interval", "margin", "verdict: ok", "horizon T: step", "K* at other lambdas"):
        assert part in text


values = st.one_of(st.sampled_from([0.5, 0.75, 1e-9, 1 - 1e-9]), st.floats(0.3, 0.9999))
errors = st.one_of(st.none(), st.floats(0, 0.3))
counts = st.one_of(st.none(), st.integers(2, 10**9), st.lists(st.integers(2, 5000), min_size=1, max_size=12))


@given(
    train=st.one_of(values, st.lists(values, min_size=1, max_size=12)),
    val=st.one_of(st.none(), values, st.lists(values, min_size=1, max_size=12)),
    scale=st.sampled_from([1e-9, 1.0, 1e9]),
    train_se=errors,
    val_se=errors,
    n_queries=counts,
    n_pairs=counts,
    lam=st.sampled_from([0.5, 0.9, 1.0]),
    max_k=st.sampled_from([None, 2, 50, 1e7]),
)
@settings(max_examples=150, deadline=None)
def test_whatever_comes_is_an_estimate_or_an_input_error(
    train, val, scale, train_se, val_se, n_queries, n_pairs, lam, max_k
):
    steps = None if np.ndim(val) == 0 else (np.arange(len(val)) * scale).tolist()
    try:
        found = nw.optimal_k(
            train,
            val,
            steps=steps,
            train_se=train_se,
            val_se=val_se,
            n_queries=n_queries,
            n_pairs=n_pairs,
            lam=lam,
            max_k=max_k,
        )
    except InputError as error:
        assert "expected" in str(error) or "Pass" in str(error) or "pass" in str(error)
        return
    assert np.all(np.isfinite(found.curve.v))
    assert Estimate.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.explain()


def test_scores_that_all_tie_are_at_chance():
    tied = (np.zeros(5), np.zeros((5, 7)))
    found = nw.optimal_k(0.8, val_scores=[tied, tied], steps=[1, 2])
    assert found.pilot.val_auc == (0.5, 0.5)


def test_counts_of_validation_serve_training_where_they_can():
    t, train, val = curves(n=8)
    one = nw.optimal_k(0.95, val, steps=t, n_queries=[500] * 8)
    assert one.interval == nw.optimal_k(0.95, val, steps=t, n_queries=500).interval
    changing = nw.optimal_k(0.95, val, steps=t, n_queries=list(range(500, 508)))
    assert changing.interval is None
    assert any("the training AUC rests on" in reason for reason in changing.reasons)
    assert nw.optimal_k(train[::2], val, steps=t, train_steps=t[::2], n_queries=[500] * 8).interval is not None


def test_an_error_of_zero_is_an_error_like_any_other():
    assert (
        nw.optimal_k(0.9, [0.5, 0.7, 0.8], steps=[1, 2, 3], train_se=0.01, val_se=[0.0, 0.01, 0.01]).interval
        is not None
    )


def test_absurd_errors_overflow_nothing():
    found = nw.optimal_k(0.9999999, n_queries=500)
    assert found.interval is not None


# --- the interval --------------------------------------------------------------------------------------------------


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

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pilots import curves

import negwise as nw
from negwise.errors import InputError
from negwise.theory.estimate import Estimate

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
    assert found.verdict in ("ok", "vacuous", "capped", "inconsistent", "incomplete")
    assert found.interval is None or found.interval[0] <= found.k <= found.interval[1]
    assert found.explain()
    assert "Estimate(k=" in repr(found)


def test_from_dict_names_what_is_wrong():
    data = nw.optimal_k(0.8, [0.6, 0.7], steps=[1, 2]).to_dict()
    curve, pilot = data["curve"], data["pilot"]
    for change, message in (
        ({"k": "20"}, "k is '20', expected a number"),
        ({"verdict": "fine"}, "verdict is 'fine', expected 'ok' or 'capped'"),
        ({"flat": [None, 3]}, r"flat\[0\] is None, expected a whole number"),
        ({"interval": [3]}, r"interval is \[3\], expected a list of 2"),
        ({"rising": {"x": 1}}, "rising.k_measured is missing"),
        ({"curve": {**curve, "v": [0.1]}}, "curve has lists of .* expected one length"),
        ({"pilot": {**pilot, "val_steps": [1]}}, "pilot has lists of 1 and 2 numbers"),
    ):
        with pytest.raises(InputError, match=f"^x.json: {message}"):
            Estimate.from_dict({**data, **change}, "x.json")
    with pytest.raises(InputError, match=r"its content is \[1\], expected an object"):
        Estimate.from_dict([1])
    del data["k"]
    with pytest.raises(InputError, match=r"^the estimate: k is missing"):
        Estimate.from_dict(data)


def test_from_dict_ignores_fields_of_a_newer_version():
    found = nw.optimal_k(0.8)
    assert Estimate.from_dict({**found.to_dict(), "newer": 1}) == found


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
    assert any("queries of the training AUC is not known" in reason for reason in changing.reasons)
    assert nw.optimal_k(train[::2], val, steps=t, train_steps=t[::2], n_queries=[500] * 8).interval is not None


def test_an_error_of_zero_is_an_error_like_any_other():
    assert (
        nw.optimal_k(0.9, [0.5, 0.7, 0.8], steps=[1, 2, 3], train_se=0.01, val_se=[0.0, 0.01, 0.01]).interval
        is not None
    )


def test_absurd_errors_overflow_nothing():
    found = nw.optimal_k(0.9999999, n_queries=500)
    assert found.interval is not None

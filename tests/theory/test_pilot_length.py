"""What a pilot does not show: its start, and what a longer one would say."""

import json

import numpy as np
import pytest

import negwise as nw
from negwise.theory.horizon import horizon_index

STEPS = np.arange(0, 2001, 100.0)


def curve(start, end, rate=300.0, steps=STEPS):
    """AUC that goes from ``start`` to ``end``."""
    low, high = nw.separation(start), nw.separation(end)
    return nw.auc(high - (high - low) * np.exp(-steps / rate))


def test_a_pretrained_model_is_read_from_its_start():
    """95% of the way, not 95% of the peak, which it has from the first step on."""
    mu = nw.separation(curve(0.9, 0.95))
    assert horizon_index(mu) < horizon_index(mu, start=mu[0])
    last = horizon_index(mu, start=mu[0])
    assert (mu[last] - mu[0]) / (mu[-1] - mu[0]) >= 0.95 > (mu[last - 1] - mu[0]) / (mu[-1] - mu[0])
    assert horizon_index(mu - mu[0], start=0.01) == horizon_index(mu - mu[0])  # a random start changes nothing
    found = nw.optimal_k(train_auc=0.97, val_auc=curve(0.9, 0.95), steps=STEPS)
    assert found.horizon == pytest.approx(STEPS[last], abs=100) and found.verdict == "ok"  # smoothing moves it


def test_a_curve_without_its_start_is_incomplete_where_that_matters():
    whole = curve(0.9, 0.95)
    with_start = nw.optimal_k(train_auc=0.97, val_auc=whole, steps=STEPS)
    without = nw.optimal_k(train_auc=0.97, val_auc=whole[1:], steps=STEPS[1:])
    assert without.verdict == "incomplete" and not without.determined
    assert with_start.k > 2 * without.k  # chance in front makes the training look harder than it was
    (reason,) = [one for one in without.reasons if "step 0" in one]
    assert f"{without.k:.3g} if the model began at chance" in reason and "Evaluate at step 0 too" in reason
    assert "do not determine K" in without.headline()


def test_a_curve_from_nothing_needs_no_start():
    whole = curve(0.5, 0.9, 600.0)
    found = nw.optimal_k(train_auc=0.92, val_auc=whole[1:], steps=STEPS[1:])
    known = nw.optimal_k(train_auc=0.92, val_auc=whole, steps=STEPS)
    assert found.verdict == known.verdict == "ok" and found.as_good(known.k)


def test_less_of_the_pilot_is_the_pilot_cut_short():
    train, val = curve(0.5, 0.97, 900.0), curve(0.5, 0.93, 700.0)
    found = nw.optimal_k(train, val, steps=STEPS)
    for share in (0.5, 0.75):
        kept = share * STEPS[-1] >= STEPS
        assert found.k_by_pilot[f"{share:g}"] == nw.optimal_k(train[kept], val[kept], steps=STEPS[kept]).k


def test_settled_means_that_less_says_the_same():
    short = nw.optimal_k(0.92, curve(0.5, 0.9, 100.0), steps=STEPS)
    long = nw.optimal_k(nw.auc(STEPS / 700), nw.auc(STEPS / 800), steps=STEPS)  # nobody knows where it will end
    assert short.settled and all(short.as_good(k) for k in short.k_by_pilot.values())
    assert not long.settled
    for found in (short, long):
        assert found.to_dict()["settled"] == found.settled
        assert nw.Estimate.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_without_a_curve_there_is_no_shorter_pilot():
    assert nw.optimal_k(0.9).k_by_pilot == nw.optimal_k(0.9, 0.85).k_by_pilot == {}
    assert nw.optimal_k(0.9, [0.6, 0.8], steps=[1, 2]).k_by_pilot == {}


@pytest.mark.parametrize("val", [0.985, [0.99, 0.97, 0.98]])
def test_curves_that_determine_nothing_print_no_k(val):
    found = nw.optimal_k(0.9, val)
    assert not found.determined
    names = [name for name, _ in found.facts()]
    assert names == ["verdict", "label separation", "horizon T"]
    assert "K*" not in found.explain().split("\n\n")[1]

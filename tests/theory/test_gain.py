"""The share of the gain: v's envelope by hand, the saturating curve by its formula, and what is refused."""

import numpy as np
import pytest

import negwise as nw
from negwise.errors import InputError

STEPS = np.arange(0, 2001, 100.0)


@pytest.fixture(scope="module")
def estimate():
    mu = nw.separation(0.93) * (1 - np.exp(-STEPS / 400))
    return nw.optimal_k(0.95, nw.auc(np.maximum(mu, 0)), steps=STEPS)


def test_auc_follows_effectiveness_up_to_its_maximum(estimate):
    ks, vs = np.array(estimate.curve.k), np.array(estimate.curve.v)
    for at in np.flatnonzero(ks < estimate.k)[::40]:
        want = (vs[at] - vs[0]) / (vs.max() - vs[0])
        assert nw.share_of_gain(ks[at], estimate=estimate).share == pytest.approx(want, abs=1e-9)
    assert nw.share_of_gain(1, estimate=estimate).share == 0
    for more in (1.5, 100, 1e9):
        assert nw.share_of_gain(more * estimate.k, estimate=estimate).share == pytest.approx(1, abs=1e-3)


def test_the_top_of_a_ranking_saturates():
    found = nw.share_of_gain(100, metric="hit@10", candidates=3251)
    assert found.share == pytest.approx(99 / (99 + 2.44 * 325.1**0.242))
    assert (found.k, found.metric) == (100, "hit@10")
    assert found.low == pytest.approx(found.share - 0.14) and found.high == 1
    shares = [nw.share_of_gain(k, metric="ndcg@10", candidates=3416).share for k in (1, 4, 20, 100, 1000)]
    assert shares[0] == 0 and shares == sorted(shares) and shares[-1] < 1
    few, many = (nw.share_of_gain(20, metric="hit@5", candidates=m).share for m in (200, 20_000))
    assert many < few


def test_an_estimate_has_its_shares(estimate):
    assert [one.k for one in estimate.shares] == [4, 20, 100, 500]
    assert estimate.to_dict()["shares"][0] == estimate.shares[0]._asdict()
    assert "share of the gain in AUC" in dict(estimate.facts())
    assert nw.optimal_k(0.55, 0.54).shares == ()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"k": 0.5, "metric": "hit@5", "candidates": 1000}, r"k: got 0\.5, expected a number of negatives, 1 or more"),
        ({"k": float("nan"), "metric": "hit@5", "candidates": 1000}, "k: got nan"),
        ({"k": 5, "metric": "ndcg@10"}, "candidates: got None, expected the number of candidates"),
        ({"k": 5, "metric": "ndcg@10", "candidates": 37}, "as in an impression, no share was measured"),
        ({"k": 5}, "estimate: got none that determines K"),
        ({"k": 5, "metric": "hit@400", "candidates": 1000}, "share of hit@400 follows from it"),
        ({"k": 5, "metric": "accuracy", "candidates": 1000}, "metric: got 'accuracy'"),
    ],
)
def test_what_cannot_be_said(words, said):
    with pytest.raises(InputError, match=said):
        nw.share_of_gain(**words)

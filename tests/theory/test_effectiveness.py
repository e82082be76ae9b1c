import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import paper_effectiveness

from negwise.errors import InputError
from negwise.theory.effectiveness import effectiveness, sample_kinds
from negwise.theory.mutual_information import mi_bound


@pytest.mark.parametrize(("label", "model", "k", "lam"), [(1, 0.4, 4, 0.9), (2.4, 2.0, 20, 0.95), (4.07, 0, 180, 0.5)])
def test_against_the_paper_as_written(label, model, k, lam):
    assert effectiveness(label, model, k, lam) == pytest.approx(paper_effectiveness(label, model, k, lam), rel=1e-12)


@given(st.floats(0, 6), st.floats(-1, 6), st.floats(0, 1e5), st.floats(0.5, 1))
@settings(max_examples=60, deadline=None)
def test_shares_and_bounds(label, model, k, lam):
    good, bad, easy = sample_kinds(label, model, k)
    assert good + bad + easy == pytest.approx(1.0)
    assert min(good, bad, easy) >= -1e-12
    v = effectiveness(label, model, k, lam)
    assert v == pytest.approx(lam * (good - bad) + (1 - lam) * easy, abs=1e-12)
    assert -lam - 1e-12 <= v <= max(lam, 1 - lam) + 1e-12


def test_the_limit_at_infinity_is_one_minus_lambda():
    for lam in (0.5, 0.9, 1.0):
        assert effectiveness(0.5, 0.2, 1e7, lam) == pytest.approx(1 - lam, abs=1e-5)


def test_a_model_as_good_as_the_labels_gains_nothing():
    k = np.geomspace(1, 1e6, 50)
    assert np.all(effectiveness(2.4, 2.4, k) <= 0.1 + 1e-12)


def test_shapes_broadcast():
    assert effectiveness(np.ones((3, 1)), np.zeros(4), 2.0).shape == (3, 4)


def test_shapes_that_do_not_broadcast_are_named():
    with pytest.raises(InputError, match=r"label \(3,\), model \(4,\)"):
        effectiveness(np.ones(3), np.ones(4), 1.0)
    with pytest.raises(InputError, match=r"loss \(3,\), k \(2,\)"):
        mi_bound(np.ones(3), [1, 2])


def test_the_bound_takes_results_and_refuses_corrected_losses():
    import torch

    from negwise.losses import bpr, info_nce, scores

    vectors = torch.eye(3, requires_grad=True)
    negatives = torch.ones(5, 3)
    plain = info_nce(vectors, vectors, negatives)
    assert mi_bound(plain, 5) == pytest.approx(np.log(6) - plain.loss.item())
    assert mi_bound(plain.loss, 5) == mi_bound(plain, 5)
    for corrected in (
        info_nce(vectors, vectors, negatives, log_q=torch.zeros(5)),
        info_nce(vectors, vectors, negatives, weight=torch.ones(3)),
        bpr(*scores(vectors, vectors, negatives)),
    ):
        with pytest.raises(InputError, match="bounds the mutual information"):
            mi_bound(corrected, 5)


def test_the_bound_refuses_rows_with_other_numbers_of_negatives():
    import torch

    from negwise.losses import info_nce

    vectors, negatives = torch.eye(3), torch.ones(5, 3)
    with pytest.raises(InputError, match="k=6, but the rows of this loss have 5 negatives each"):
        mi_bound(info_nce(vectors, vectors, negatives), 6)
    nothing = info_nce(vectors, vectors, negatives, mask=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(InputError, match="have 0 negatives each"):
        mi_bound(nothing, 5)
    counts = torch.tensor([0, 2, 5])
    with pytest.raises(InputError, match=r"0 to 5 negatives each.*mi_bound\(result.loss, result.pairs\)"):
        mi_bound(info_nce(vectors, vectors, negatives, mask=counts), 5)
    rows = info_nce(vectors, vectors, negatives, mask=counts, reduction="none")
    want = np.mean(np.log1p(counts.numpy()) - rows.loss.numpy())
    assert mi_bound(rows, rows.pairs).mean() == pytest.approx(want)


def test_the_bound_takes_half_precision():
    import torch

    assert mi_bound(torch.tensor(1.25, dtype=torch.bfloat16), 4) == pytest.approx(np.log(5) - 1.25)


@pytest.mark.parametrize("lam", [0.4, 1.1, float("nan"), "high", None])
def test_bad_lambda_is_named(lam):
    with pytest.raises(InputError, match=r"lam: got .*expected a number from 0.5 to 1"):
        effectiveness(1, 0, 4, lam)


def test_mutual_information_bound():
    # An untrained model: the loss is log(K + 1), and the bound says nothing.
    k = np.array([1, 4, 100])
    np.testing.assert_allclose(mi_bound(np.log(k + 1.0), k), 0, atol=1e-15)
    assert mi_bound(0.0, 1023) == pytest.approx(10 * np.log(2))
    with pytest.raises(InputError, match="loss: got nan"):
        mi_bound(float("nan"), 4)

"""What every loss promises, over all of them: the formula in loops, ragged rows, no negatives, the win rate, NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import loss_loops as loops
import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from negwise.errors import InputError
from negwise.losses import bce, bpr, debiased, decoupled, gbce, info_nce, info_nce_scores
from negwise.losses.result import LossResult

Loss = Callable[..., LossResult]
Row = Callable[..., mpmath.mpf]


def from_vectors(impl: str) -> Loss:
    """`info_nce` as a loss on scores: the query is 1, a vector is its score."""

    def loss(positive: Tensor, negatives: Tensor, mask: Tensor | None = None, **more: Any) -> LossResult:
        ones = torch.ones_like(positive)[:, None]
        return info_nce(ones, positive[:, None], negatives[:, :, None], mask=mask, impl=impl, **more)

    return loss


ALL_LOSSES: dict[str, tuple[Loss, Row]] = {
    "info_nce reference": (from_vectors("reference"), loops.info_nce_row),
    "info_nce streamed": (from_vectors("streamed"), loops.info_nce_row),
    "info_nce_scores": (info_nce_scores, loops.info_nce_row),
    "debiased": (
        partial(debiased, tau_plus=0.3, min_score=-8.0),
        partial(loops.debiased_row, tau_plus=0.3, min_score=-8.0),
    ),
    "debiased unbounded": (
        partial(debiased, tau_plus=0.05, min_score=-math.inf),
        partial(loops.debiased_row, tau_plus=0.05, min_score=-math.inf),
    ),
    "decoupled": (decoupled, loops.decoupled_row),
    "bpr": (bpr, loops.bpr_row),
    "bce": (bce, loops.bce_row),
    "gbce": (partial(gbce, catalogue=40, t=0.75), partial(loops.gbce_row, catalogue=40, t=0.75)),
}
every_loss = pytest.mark.parametrize("name", ALL_LOSSES)


def scores(rows: int, width: int, dtype: torch.dtype = torch.float64, scale: float = 2.0) -> tuple[Tensor, Tensor]:
    make = torch.Generator().manual_seed(rows * 1000 + width)
    positive = torch.randn(rows, generator=make, dtype=torch.float64) * scale
    return positive.to(dtype), (torch.randn(rows, width, generator=make, dtype=torch.float64) * scale).to(dtype)


def ragged(rows: int, width: int) -> Tensor:
    mask = torch.rand(rows, width, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[0] = False
    return mask


@every_loss
@pytest.mark.parametrize("width", [0, 1, 2, 17])
@pytest.mark.parametrize("masked", [False, True])
def test_the_formula_in_loops(name: str, width: int, masked: bool) -> None:
    loss, row = ALL_LOSSES[name]
    positive, negatives = scores(6, width)
    mask = ragged(6, width) if masked else None
    got = loss(positive, negatives, mask, reduction="none")
    for b in range(6):
        seen = [float(n) for j, n in enumerate(negatives[b]) if mask is None or mask[b, j]]
        assert float(got.loss[b]) == pytest.approx(float(row(float(positive[b]), seen)), rel=1e-12, abs=1e-14)
        assert got.wins is not None and float(got.wins[b]) == loops.wins(float(positive[b]), seen)
        assert got.pairs is not None and int(got.pairs[b]) == len(seen)
        assert got.hits is not None and float(got.hits[b]) == loops.hit(float(positive[b]), seen)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_half_precision_computes_in_float32(name: str, dtype: torch.dtype) -> None:
    loss, row = ALL_LOSSES[name]
    positive, negatives = scores(5, 9, dtype)
    got = loss(positive, negatives, reduction="none").loss
    assert got.dtype == torch.float32
    want = [float(row(float(p), n.tolist())) for p, n in zip(positive, negatives, strict=True)]
    assert got.tolist() == pytest.approx(want, rel=2e-6, abs=2e-6)


@every_loss
@pytest.mark.parametrize(("above", "below"), [(1e4, -1e4), (-1e4, 1e4), (1e4, 1e4), (-1e4, -1e4)])
def test_scores_of_ten_thousand(name: str, above: float, below: float) -> None:
    loss, row = ALL_LOSSES[name]
    positive = torch.tensor([above], requires_grad=True)
    negatives = torch.tensor([[below, below, 0.0]], requires_grad=True)
    got = loss(positive, negatives).loss
    with mpmath.workdps(9000):  # 1 - sigmoid(1e4) needs them
        want = float(row(above, [below, below, 0.0]))
    assert got.item() == pytest.approx(want, rel=1e-6, abs=1e-6)
    for grad in torch.autograd.grad(got, [positive, negatives]):
        assert bool(torch.isfinite(grad).all())


@every_loss
def test_gradcheck(name: str) -> None:
    loss, _ = ALL_LOSSES[name]
    positive, negatives = (t.requires_grad_() for t in scores(5, 4))
    mask = ragged(5, 4)
    assert torch.autograd.gradcheck(lambda p, n: loss(p, n, mask, reduction="none").loss, (positive, negatives))


@every_loss
def test_a_row_without_negatives_teaches_nothing(name: str) -> None:
    loss, _ = ALL_LOSSES[name]
    positive, negatives = (t.requires_grad_() for t in scores(3, 4))
    for given_negatives, mask in ((negatives, torch.zeros(3, 4, dtype=torch.bool)), (negatives[:, :0], None)):
        got = loss(positive, given_negatives, mask)
        (grad,) = torch.autograd.grad(got.loss, [positive])
        assert got.loss.item() == 0 and not grad.any()
        assert got.win_rate is not None and got.win_rate.isnan()


@every_loss
def test_phantom_zero_logits_of_ragged_rows(name: str) -> None:
    """Padding, whatever is in it, changes neither loss nor gradient."""
    loss, _ = ALL_LOSSES[name]
    positive, negatives = scores(4, 3)
    padded = torch.cat([negatives, torch.zeros(4, 2, dtype=torch.float64)], 1)
    padded[1, 3:] = torch.nan
    mask = torch.arange(5).expand(4, 5) < 3
    results = []
    for n, m in ((negatives, None), (padded, mask), (padded, torch.full((4,), 3))):
        leaf = n.clone().requires_grad_()
        value = loss(positive, leaf, m).loss
        (grad,) = torch.autograd.grad(value, leaf)
        results.append((value.detach(), grad[:, :3]))
        assert not grad[:, 3:].any()
    for padded_result in results[1:]:
        torch.testing.assert_close(padded_result, results[0], rtol=1e-13, atol=1e-15)


@every_loss
def test_order_of_negatives_does_not_matter(name: str) -> None:
    loss, _ = ALL_LOSSES[name]
    positive, negatives = scores(4, 9)
    turned = negatives[:, torch.randperm(9, generator=torch.Generator().manual_seed(0))]
    torch.testing.assert_close(loss(positive, negatives).loss, loss(positive, turned).loss, rtol=1e-12, atol=1e-14)


@every_loss
def test_nan_is_named(name: str) -> None:
    loss, _ = ALL_LOSSES[name]
    positive, negatives = scores(4, 3)
    for tensor, called in ((positive, "positive"), (negatives, "negatives")):
        kept = tensor.clone()
        tensor[2] = torch.nan
        with pytest.raises(InputError, match=f"{called} is not finite: nan first in row 2"):
            loss(positive, negatives)
        tensor.copy_(kept)


@every_loss
def test_reductions_and_bound(name: str) -> None:
    loss, _ = ALL_LOSSES[name]
    positive, negatives = scores(4, 3)
    each, weight = loss(positive, negatives, reduction="none").loss, torch.tensor([0.0, 2.0, 1.0, 1.0]).double()
    torch.testing.assert_close(loss(positive, negatives).loss, each.mean())
    torch.testing.assert_close(loss(positive, negatives, reduction="sum").loss, each.sum())
    torch.testing.assert_close(loss(positive, negatives, weight=weight).loss, (weight * each).sum() / 4)
    assert loss(positive, negatives).bound_valid is name.startswith("info_nce")
    with pytest.raises(InputError):
        loss(positive, negatives[:3])
    with pytest.raises(InputError):
        loss(positive.long(), negatives.long())


@settings(max_examples=40, deadline=None)
@given(
    positive=st.floats(-30, 30),
    negatives=st.lists(st.floats(-30, 30), max_size=6),
    name=st.sampled_from(sorted(ALL_LOSSES)),
)
def test_any_scores(positive: float, negatives: list[float], name: str) -> None:
    loss, row = ALL_LOSSES[name]
    got = loss(torch.tensor([positive]).double(), torch.tensor([negatives]).double().view(1, -1))
    above, below = float(torch.tensor(positive)), torch.tensor(negatives).tolist()
    assert float(got.loss) == pytest.approx(float(row(above, below)), rel=1e-9, abs=1e-12)


def test_kin() -> None:
    """Where the papers say that two of them meet."""
    positive, negatives = scores(5, 1)
    torch.testing.assert_close(bpr(positive, negatives).loss, info_nce_scores(positive, negatives).loss)
    positive, negatives = scores(5, 7)
    without = debiased(positive, negatives, tau_plus=0.0, min_score=-math.inf)
    torch.testing.assert_close(without.loss, info_nce_scores(positive, negatives).loss)
    torch.testing.assert_close(gbce(positive, negatives, catalogue=50, t=0.0).loss, bce(positive, negatives).loss)
    torch.testing.assert_close(gbce(positive, negatives, catalogue=8, t=1.0).loss, bce(positive, negatives).loss)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(debiased, tau_plus=1.0, min_score=-1.0), "tau_plus=1.0"),
        (partial(debiased, tau_plus=0.1, min_score=math.inf), "min_score=inf"),
        (partial(gbce, catalogue=1), "catalogue=1"),
        (partial(gbce, catalogue=10, t=1.5), "t=1.5"),
        (partial(gbce, catalogue=3), "3 negatives out of a catalogue of 3"),
        (partial(gbce, catalogue=math.nan), "catalogue=nan"),
    ],
)
def test_dials_out_of_range(call: Loss, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(*scores(2, 3))


def test_a_hidden_negative_is_not_of_the_catalogue() -> None:
    positive, negatives = scores(3, 3)
    others = ~torch.eye(3, dtype=torch.bool)
    assert gbce(positive, negatives, others, catalogue=3).loss.isfinite()
    with pytest.raises(InputError, match="3 negatives out of a catalogue of 3"):
        gbce(positive, negatives, others | (torch.arange(3) == 1), catalogue=3)


@every_loss
@pytest.mark.parametrize("name_of", ["mask", "weight"])
def test_a_list_beside_scores_is_named(name: str, name_of: str) -> None:
    with pytest.raises(InputError, match=f"{name_of} is a list; expected a torch tensor"):
        ALL_LOSSES[name][0](*scores(2, 3), **{name_of: [1, 2]})


def test_who_computes_is_asked_as_the_loss_is() -> None:
    from negwise.losses import scores as products
    from negwise.losses import which_impl

    vectors = torch.rand(2, 3)
    for call in (which_impl, products):
        with pytest.raises(InputError, match="positive is a list"):
            call(vectors, [1, 2], vectors)
        with pytest.raises(InputError, match="negatives is a list"):
            call(vectors, vectors, [1, 2])
        with pytest.raises(InputError, match="float64 does not mix"):
            call(vectors.double(), vectors, vectors)
        with pytest.raises(InputError, match="ids is a list"):
            call(vectors, vectors, vectors, ids=[1, 2])


@pytest.mark.parametrize("name", ["ids", "mask", "log_q", "positive_ids", "weight"])
def test_a_list_in_place_of_a_tensor_is_named(name):
    from negwise.losses import info_nce, which_impl

    vectors = torch.rand(2, 3)
    for call in (info_nce, which_impl) if name != "weight" else (info_nce,):
        with pytest.raises(InputError, match=f"{name} is a list; expected a torch tensor"):
            call(vectors, vectors, torch.rand(4, 3), **{name: [1, 2]})


@pytest.mark.parametrize("temperature", [None, "cold", True])
def test_a_temperature_that_is_no_number_is_named(temperature):
    from negwise.losses import info_nce

    vectors = torch.rand(2, 3)
    with pytest.raises(InputError, match=r"temperature is a .*; expected a number above 0"):
        info_nce(vectors, vectors, torch.rand(4, 3), temperature=temperature)

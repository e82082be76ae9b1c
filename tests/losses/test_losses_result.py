"""What a loss returns: reduced, with its counts, through frameworks that rebuild tuples."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from accelerate.utils import recursively_apply
from lightning_fabric import Fabric
from lightning_utilities import apply_to_collection
from loss_loops import random_case
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from negwise.losses import LossResult, LossWithoutBound, bpr, info_nce, scores


def test_weight_and_reduction() -> None:
    case = random_case("shared", 4, 5, 3, torch.float64)
    each = info_nce(**case, reduction="none").loss
    weight = torch.tensor([0.0, 1.0, 2.0, 0.5], dtype=torch.float64)
    assert info_nce(**case).loss.item() == pytest.approx(sum(each.tolist()) / 4)
    assert info_nce(**case, reduction="sum").loss.item() == pytest.approx(sum(each.tolist()))
    torch.testing.assert_close(info_nce(**case, weight=weight, reduction="none").loss, weight * each)
    weighted = sum(w * x for w, x in zip(weight.tolist(), each.tolist(), strict=True))
    assert info_nce(**case, weight=weight).loss.item() == pytest.approx(weighted / 3.5)
    assert info_nce(**case, weight=weight, reduction="sum").loss.item() == pytest.approx(weighted)


def test_result_carries_counts_and_says_what_the_bound_is_worth() -> None:
    case = random_case("shared", 3, 5, 2, torch.float32)
    plain = info_nce(**case)
    loss, wins, pairs, hits, rows = plain
    assert loss is plain.loss and wins is plain.wins and pairs is plain.pairs
    assert type(plain) is LossResult and plain.bound_valid is True
    assert wins is not None and pairs is not None and plain.win_rate is not None
    assert plain.win_rate.item() == pytest.approx(wins.sum().item() / pairs.sum().item())
    assert hits is not None and rows is not None and plain.hit_rate is not None
    assert plain.hit_rate.item() == hits.mean().item() and rows.tolist() == [1, 1, 1]
    corrected = info_nce(**case, log_q=torch.zeros(5))
    assert type(corrected) is LossWithoutBound and corrected.bound_valid is False
    assert corrected._fields == plain._fields == ("loss", "wins", "pairs", "hits", "rows")
    assert not info_nce(**case, reduction="sum").bound_valid
    assert not info_nce(**case, weight=torch.ones(3)).bound_valid
    assert type(bpr(*scores(**case))) is LossWithoutBound
    without = info_nce(**case, stats=False)
    assert without.win_rate is without.hit_rate is without.wins is without.hits is without.rows is None
    assert torch.equal(without.loss, plain.loss)


def test_a_result_has_no_backward() -> None:
    with pytest.raises(AttributeError, match="backward"):
        info_nce(**random_case("shared", 3, 5, 2, torch.float32)).backward()  # type: ignore[union-attr]


def same(made: LossResult | LossWithoutBound, result: LossResult | LossWithoutBound) -> bool:
    """Whether type, fields and properties are those of ``result``."""
    if type(made) is not type(result) or made.bound_valid != result.bound_valid:
        return False
    parts = zip((*made, made.win_rate), (*result, result.win_rate), strict=True)
    return all(a is b is None or torch.equal(a, b) for a, b in parts)


@pytest.mark.parametrize("stats", [True, False])
def test_a_result_that_is_rebuilt_keeps_its_type_and_fields(stats: bool) -> None:
    """As tree_map does, DDP, Fabric, accelerate, copy and pickle."""
    case = random_case("shared", 3, 5, 2, torch.float32)
    for result in (info_nce(**case, stats=stats), info_nce(**case, log_q=torch.zeros(5), stats=stats)):
        assert same(type(result)(*result), result)
        assert same(tree_map(lambda part: part, result), result)
        leaves, spec = tree_flatten(result)
        assert len(leaves) == 5 and same(tree_unflatten(leaves, spec), result)
        assert same(recursively_apply(lambda part: part, result), result)
        assert same(apply_to_collection(result, torch.Tensor, lambda part: part), result)
        assert same(copy.copy(result), result) and same(pickle.loads(pickle.dumps(result)), result)


def test_a_module_may_return_a_result_through_fabric() -> None:
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")

    class Encoder(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> LossResult | LossWithoutBound:
            return info_nce(super().forward(x), super().forward(x))

    module = fabric.setup(Encoder(3, 4))
    result = module(torch.randn(5, 3))
    fabric.backward(result.loss)
    assert module.weight.grad.isfinite().all() and result.win_rate.isfinite()
    assert type(result) is LossResult and result.pairs.tolist() == [4] * 5

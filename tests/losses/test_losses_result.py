"""What a loss returns: reduced, with its counts, through frameworks that make tuples anew."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from lightning_fabric import Fabric
from loss_loops import random_case
from torch.utils._pytree import tree_map

from negwise.errors import InputError
from negwise.losses import CorrectedLoss, LossResult, info_nce


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
    loss, win_rate = plain
    assert loss is plain.loss and win_rate is plain.win_rate and type(plain) is LossResult and plain.bound_valid
    assert plain.wins is not None and plain.pairs is not None and win_rate is not None
    assert win_rate.item() == pytest.approx(plain.wins.sum().item() / plain.pairs.sum().item())
    corrected = info_nce(**case, log_q=torch.zeros(5))
    assert type(corrected) is CorrectedLoss and not corrected.bound_valid and "log_q" in corrected.why
    assert not info_nce(**case, reduction="sum").bound_valid
    assert not info_nce(**case, weight=torch.ones(3)).bound_valid
    without = info_nce(**case, stats=False)
    assert without.win_rate is None and without.wins is None and torch.equal(without.loss, plain.loss)
    for copied in (copy.copy(plain), pickle.loads(pickle.dumps(plain))):
        assert copied.loss == plain.loss and copied.impl == plain.impl and torch.equal(copied.wins, plain.wins)


def test_a_result_that_somebody_makes_anew_keeps_its_two_fields_and_says_what_is_gone() -> None:
    case = random_case("shared", 3, 5, 2, torch.float32)
    for result in (info_nce(**case), info_nce(**case, log_q=torch.zeros(5))):
        for made in (type(result)(*result), tree_map(lambda part: part, result)):
            assert type(made) is type(result) and made.loss is result.loss and made.win_rate is result.win_rate
            for name in ("wins", "pairs", "impl"):
                with pytest.raises(InputError, match=rf"result\.{name} is gone"):
                    getattr(made, name)
            assert bool(made.why) is not made.bound_valid
            assert torch.equal(copy.copy(made).loss, result.loss)


def test_a_module_may_return_a_result_through_fabric() -> None:
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")

    class Encoder(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> LossResult:
            return info_nce(super().forward(x), super().forward(x))

    module = fabric.setup(Encoder(3, 4))
    loss, win_rate = module(torch.randn(5, 3))
    fabric.backward(loss)
    assert module.weight.grad.isfinite().all() and win_rate.isfinite()

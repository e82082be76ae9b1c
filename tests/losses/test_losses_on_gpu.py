"""The same functions on CUDA tensors, against float64 on the CPU."""

from __future__ import annotations

import pytest
import torch
from loss_loops import random_case, width_of

from negwise.losses import bce, bpr, debiased, decoupled, gbce, info_nce, info_nce_scores, scores, which_impl

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("impl", ["reference", "streamed", "fused"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["shared", "rows", "table", "batch"])
@pytest.mark.parametrize("hide", ["nothing", "mask", "counts"])
def test_equals_float64_on_the_cpu(impl: str, dtype: torch.dtype, layout: str, hide: str) -> None:
    case = random_case(layout, 19, 300, 24, dtype)
    width = width_of(case)
    mask = {
        "nothing": None,
        "mask": torch.rand(19, width, generator=torch.Generator().manual_seed(0)) < 0.5,
        "counts": torch.arange(19) % (width + 1),
    }[hide]
    results = []
    for device, precision, how in (("cpu", torch.float64, "reference"), ("cuda", dtype, impl)):
        given = {k: v.to(device, precision if v.is_floating_point() else None) for k, v in case.items()}
        leaves = [given[name].requires_grad_() for name in ("query", "positive", "negatives") if name in given]
        got = info_nce(**given, mask=None if mask is None else mask.to(device), temperature=4.0, impl=how)
        assert got.wins is not None and got.pairs is not None and got.hits is not None
        grads = torch.autograd.grad(got.loss, leaves)
        results.append([t.detach().double().cpu() for t in (got.loss, got.pairs, got.wins, got.hits, *grads)])
    rough = dtype != torch.float32
    for i, (want, found) in enumerate(zip(*results, strict=True)):
        # A score may round to the other side of a near tie; gradients come in the inputs' dtype.
        slack = {"rtol": 2e-2 if rough else 1e-4, "atol": 1e-3 if rough else 1e-5}
        if i in (2, 3):
            slack = {"rtol": 0, "atol": 1.0}
        torch.testing.assert_close(found, want, **slack)


def test_losses_on_scores() -> None:
    case = random_case("rows", 7, 20, 5, torch.float32)
    for loss in (
        info_nce_scores,
        bpr,
        bce,
        decoupled,
        lambda *a: gbce(*a, catalogue=100),
        lambda *a: debiased(*a, tau_plus=0.1, min_score=-9.0),
    ):
        mask = torch.arange(20) < torch.arange(7)[:, None]
        want = loss(*scores(**{k: v.double() for k, v in case.items()}, mask=mask))
        got = loss(*scores(**{k: v.cuda() for k, v in case.items()}, mask=mask.cuda()))
        assert got.loss.item() == pytest.approx(want.loss.item(), rel=1e-4)
        assert got.wins is not None and want.wins is not None and torch.equal(got.wins.cpu(), want.wins)


@pytest.mark.parametrize(("dtype", "impl"), [(torch.float32, "streamed"), (torch.bfloat16, "fused")])
def test_large_shared_set_in_bounded_memory(dtype: torch.dtype, impl: str) -> None:
    query = torch.randn(32, 256, device="cuda", dtype=dtype, requires_grad=True)
    keys = torch.randn(1_000_000, 256, device="cuda", dtype=dtype)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    got = info_nce(query, query.detach(), keys, temperature=16.0)
    got.loss.backward()
    assert which_impl(query, query.detach(), keys).impl == impl
    assert torch.cuda.max_memory_allocated() - before < 200e6  # the scores alone are 128 MB, plain torch takes 4 x

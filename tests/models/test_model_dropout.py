"""Dropout by 16 random bits an element: the binomial law, torch's own scaling, gradients, and the same draws again."""

import numpy as np
import pytest
import torch
from scipy import stats

from negwise.models.layers import Dropout


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
def test_zeroes_are_binomial_and_independent_of_their_place(p):
    torch.manual_seed(0)
    zero = (Dropout(p)(torch.ones(300, 1001)) == 0).numpy()
    assert stats.binomtest(int(zero.sum()), zero.size, p).pvalue > 1e-3
    # Four elements come from one word of 64 bits: pairs at any of these distances are as rare as chance has them.
    flat = zero.ravel()
    for apart in (1, 2, 3, 4, 1001):
        both = int((flat[apart:] & flat[:-apart])[:: 2 * apart].sum())
        assert stats.binomtest(both, len(flat[apart:][:: 2 * apart]), p * p).pvalue > 1e-4
    columns = stats.chisquare(zero.sum(0), np.full(1001, zero.sum() / 1001))
    assert columns.pvalue > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_kept_is_scaled_as_torch_does_and_so_is_its_gradient(dtype):
    torch.manual_seed(0)
    x = torch.randn(7, 11, 3, dtype=dtype, requires_grad=True)
    y = Dropout(0.25)(x)
    scale = torch.nn.functional.dropout(torch.ones(64, dtype=dtype), 0.25).max()
    assert y.dtype == dtype
    kept = y != 0
    assert 0 < kept.sum() < kept.numel()
    assert torch.equal(y[kept], (x * scale)[kept])
    y.sum().backward()
    assert torch.equal(x.grad, kept * scale)


def test_the_seed_decides_and_evaluation_changes_nothing():
    x, layer = torch.randn(5, 9), Dropout(0.5)
    torch.manual_seed(3)
    first = layer(x)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)
    assert not torch.equal(layer(x), first)
    assert torch.equal(layer.eval()(x), x)


@pytest.mark.parametrize(("p", "expected"), [(0.0, 1.0), (1.0, 0.0)])
def test_none_and_all(p, expected):
    assert torch.equal(Dropout(p)(torch.ones(4, 4)), torch.full((4, 4), expected))
    assert Dropout(0.5)(torch.ones(0, 4)).shape == (0, 4)

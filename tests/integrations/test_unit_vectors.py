"""Vectors of length 1: values and gradients are those of `torch.nn.functional.normalize`."""

import pytest
import torch
import torch.nn.functional as F

from negwise.integrations.unit_vectors import unit_vectors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_torch(dtype):
    generator = torch.Generator().manual_seed(3)
    vectors = torch.randn(6, 5, generator=generator, dtype=dtype)
    vectors[1], vectors[2], vectors[3] = 0, vectors[2] * 1e-14, vectors[3] * 1e6  # none, shorter than the least, long
    grad = torch.randn(6, 5, generator=generator, dtype=dtype)
    found = []
    for unit in (unit_vectors, lambda x: F.normalize(x, dim=-1)):
        leaf = vectors.clone().requires_grad_()
        value = unit(leaf)
        found.append((value.detach(), *torch.autograd.grad(value, leaf, grad)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])


def test_gradients_against_differences():
    vectors = torch.randn(4, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(unit_vectors, vectors)


def test_half_precision_under_autocast_as_in_torch():
    vectors = torch.randn(4, 3, generator=torch.Generator().manual_seed(5)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        leaf = vectors.clone().requires_grad_()
        value, expected = unit_vectors(leaf), F.normalize(vectors, dim=-1)
    torch.testing.assert_close(value, expected)
    value.float().sum().backward()
    assert leaf.grad is not None and leaf.grad.dtype == torch.bfloat16

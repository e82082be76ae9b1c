"""Vectors of length 1, in half of the operations that `torch.nn.functional.normalize` takes with its backward pass.

A small batch on a GPU waits for the host, so that operations count, and not what each of them computes.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

SHORTEST = 1e-12
"""Vectors shorter than this are divided by it, as in PyTorch."""


def unit_vectors(vectors: Tensor) -> Tensor:
    """u = x / max(|x|, 1e-12) for each row x of ``vectors`` (B, D). Differentiable once."""
    unit: Tensor = _UnitVectors.apply(vectors)  # type: ignore[no-untyped-call]
    return unit


class _UnitVectors(torch.autograd.Function):
    """With r = max(|x|, 1e-12) the gradient is (g - u (u g)) / r, and g / r where the vector is shorter."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        lengths = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(SHORTEST)
        unit = vectors / lengths
        ctx.save_for_backward(unit, lengths)
        return unit

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        unit, lengths = ctx.saved_tensors
        along = (unit * grad).sum(-1, keepdim=True) * (lengths > SHORTEST)
        return torch.addcmul(grad, unit, along, value=-1) / lengths

"""Attention that padding cannot be seen through. N rows, L places, E width in, D width out.

Each part takes ``x`` (N, L, E) and ``mask`` (N, L), true where there is something. Where a row has nothing at all,
softmax has no answer: the zero vector is ours, with gradient 0 and never NaN.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from negwise.models.limits import counted

KERNELS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which is slow at every new shape: each step has another number of texts, some 100 ms on an H200."""


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of ``scores`` (..., L) where ``mask`` is true; 0 elsewhere and in rows without any."""
    # The lowest finite number is far enough from any score that its exponential is exactly 0, and unlike
    # -inf it keeps rows without anything free of NaN, forward and backward.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), -1) * mask


class AdditivePooling(nn.Module):
    """A weighted mean of places: weights softmax(q . tanh(W x + b)); (N, L, E) -> (N, E)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        counted(pooling=inner)
        self.inner = nn.Linear(width, inner)
        self.query = nn.Linear(inner, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        scores = self.query(torch.tanh(self.inner(x))).squeeze(-1)  # (N, L)
        weights = masked_softmax(scores, mask).to(x.dtype)
        return torch.einsum("nl,nle->ne", weights, x)


class SelfAttention(nn.Module):
    """Multi-head self-attention softmax(Q K' / sqrt d) V, heads side by side: (N, L, E) -> (N, L, heads * d).

    ``bias`` is for the three projections; ``dropout`` is on the weights.
    """

    def __init__(self, width: int, heads: int, head_dim: int, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        counted(heads=heads, head_dim=head_dim)
        self.heads = heads
        self.dropout = dropout
        self.projections = nn.Linear(width, 3 * heads * head_dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.projections(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        # A row without anything looks at everything, so that it stays finite; nobody reads what it finds.
        seen = mask | ~mask.any(-1, keepdim=True)
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(KERNELS) if x.is_cuda else nullcontext():
            heads = F.scaled_dot_product_attention(query, key, value, seen[:, None, None, :], dropout)
        return heads.transpose(1, 2).flatten(2)  # from (N, heads, L, d)

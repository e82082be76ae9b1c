"""Post-norm Transformer layers, as in Vaswani et al. 2017 and BERT. N rows, L positions, D width."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from negwise.models.layers import Dropout, SelfAttention, check_positive_ints


class TransformerLayer(nn.Module):
    """``x = LN(x + O attention(x))``, then ``LN(x + W2 act(W1 x))``; (N, L, D) -> (N, L, D), D = heads * head_dim."""

    def __init__(
        self, heads: int, head_dim: int, inner: int, dropout: float, activation: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        width = heads * head_dim
        self.attention = SelfAttention(width, heads, head_dim, bias=True, dropout=dropout)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)
        self.inner_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.output(self.attention(x, mask))))
        inner = self.narrow(self.activation(self.widen(x)))
        return self.inner_norm(x + self.dropout(inner))


class Transformer(nn.Module):
    """A stack of layers on vectors that include their positions: layer norm, dropout, then the layers in turn."""

    def __init__(
        self,
        layers: int,
        heads: int,
        head_dim: int,
        inner: int,
        dropout: float,
        activation: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        check_positive_ints(layers=layers)
        self.norm = nn.LayerNorm(heads * head_dim)
        self.dropout = Dropout(dropout)
        self.layers = nn.ModuleList(
            TransformerLayer(heads, head_dim, inner, dropout, activation) for _ in range(layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.dropout(self.norm(x))
        for layer in self.layers:
            x = layer(x, mask)
        return x


class TextTransformer(nn.Module):
    """A Transformer over words: ``sqrt(D) P x + sinusoids``, then the layers; (N, L, E) -> (N, L, D)."""

    def __init__(self, width: int, layers: int, heads: int, head_dim: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.project = nn.Linear(width, heads * head_dim)
        self.transformer = Transformer(layers, heads, head_dim, inner, dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.project(x)
        width = x.shape[-1]
        # At least float32, also under autocast: bfloat16 is too coarse for the angles.
        positions = sinusoids(x.shape[1], width, x.device, torch.promote_types(x.dtype, torch.float32))
        x = math.sqrt(width) * x + positions
        return self.transformer(x if torch.is_autocast_enabled(x.device.type) else x.to(self.project.weight), mask)


@cache
def sinusoids(length: int, width: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Positions (length, width): sin(p w_i) in the first half, cos(p w_i) in the second, w_i = 10000^(-2i / width).

    Computed in float64: in float32 the angle of position 100 would be off by 1e-5. Results stay cached, because every
    step needs the same few, and a recorded CUDA graph reads them at their address.
    """
    half = torch.arange(0, width, 2, device=device, dtype=torch.float64)
    angle = torch.arange(length, device=device)[:, None] * torch.exp(half * (-math.log(10_000.0) / width))
    return torch.cat([angle.sin(), angle.cos()], 1)[:, :width].to(dtype)

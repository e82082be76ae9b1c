"""Layers that padding cannot be seen through, how their weights start, and checks of settings.

N rows, L places, E width in, D width out. Each layer takes ``x`` (N, L, E) and ``mask`` (N, L), true where there is
something. Where a row has nothing at all, softmax has no answer: the zero vector is ours, with gradient 0, never NaN.

Recurrent layers run over rows of different length without packing: cuDNN's plain path, and no wait for lengths. A state
never looks ahead, so what comes after the last item cannot be seen in it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from numbers import Integral, Real

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from negwise.errors import InputError

SDPA_BACKENDS = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Not cuDNN's, which is slow at every new shape: each step has another number of texts, some 100 ms on an H200."""


class AdditivePooling(nn.Module):
    """A weighted mean of places: weights softmax(q . tanh(W x + b)); (N, L, E) -> (N, E)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        check_positive_ints(pooling=inner)
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
        check_positive_ints(heads=heads, head_dim=head_dim)
        self.heads = heads
        self.dropout = dropout
        self.projections = nn.Linear(width, 3 * heads * head_dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.projections(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        # A row without anything looks at everything, so that it stays finite; nobody reads what it finds.
        key_mask = mask | ~mask.any(-1, keepdim=True)
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(SDPA_BACKENDS) if x.is_cuda else nullcontext():
            heads = F.scaled_dot_product_attention(query, key, value, key_mask[:, None, None, :], dropout)
        return heads.transpose(1, 2).flatten(2)  # from (N, heads, L, d)


class Convolution(nn.Module):
    """activation(conv(x)) over windows of ``window`` words, as many places out as in: (N, L, E) -> (N, L, filters).

    Padding is zeros, like what lies beyond the ends of the text, so that it cannot be seen.
    """

    def __init__(
        self, width: int, filters: int, window: int, activation: Callable[[Tensor], Tensor] = torch.relu
    ) -> None:
        super().__init__()
        check_positive_ints(hidden=filters, window=window)
        if window % 2 == 0:
            raise InputError(f"window={window}, expected an odd number of words such as 3")
        self.convolution = nn.Conv1d(width, filters, window, padding=window // 2)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x * mask[..., None]
        return self.activation(self.convolution(x.transpose(1, 2))).transpose(1, 2)


class LSTMLayer(nn.Module):
    """An LSTM in reading order, one state per word: (N, L, E) -> (N, L, D). Padding is on the right."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        check_positive_ints(hidden=hidden)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002 - the reader of the states has the mask
        states: Tensor = self.lstm(x)[0]
        return states


class GRULastState(nn.Module):
    """The state of a GRU after the last item: x (N, L, E), length (N,), start (N, D) -> (N, D).

    Padding is on the right; a row without items ends where it starts.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gru = nn.GRU(width, hidden, batch_first=True)

    def forward(self, x: Tensor, length: Tensor, start: Tensor) -> Tensor:
        if x.shape[1] == 0:
            return start
        states, _ = self.gru(x, start.to(x.dtype)[None].contiguous())
        last_index = (length - 1).clamp(min=0)
        state = states[torch.arange(len(x), device=x.device), last_index]
        return torch.where(length[:, None] > 0, state, start.to(state.dtype))


class Encoder(nn.Module):
    """``pooling(dropout(context(x)))``: x (N, L, E), mask (N, L) -> (N, D). All masked: the zero vector.

    ``context`` maps (N, L, E) and the mask to (N, L, D). With words as places it encodes a text, with clicked
    news as places a reader.
    """

    def __init__(self, context: nn.Module, width: int, pooling: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.dropout = nn.Dropout(dropout)
        self.pooling = AdditivePooling(width, pooling)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        pooled: Tensor = self.pooling(self.dropout(self.context(x, mask)), mask)
        return pooled


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of ``scores`` (..., L) where ``mask`` is true; 0 elsewhere and in rows without any."""
    # The lowest finite number is far enough from any score that its exponential is exactly 0, and unlike
    # -inf it keeps rows without anything free of NaN, forward and backward.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), -1) * mask


@torch.no_grad()
def init_xavier(module: nn.Module) -> None:
    """Glorot-uniform weights, orthogonal recurrences, zero biases, for ``model.apply``: as Keras starts its layers.

    Query, key and value are three matrices, although they are kept as one. An LSTM begins by remembering: the bias
    of its forget gate is 1.
    """
    if isinstance(module, nn.Linear | nn.Conv1d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, SelfAttention):  # after the Linear in it, which `apply` comes to first
        for part in module.projections.weight.chunk(3):
            nn.init.xavier_uniform_(part)
    elif isinstance(module, nn.GRU | nn.LSTM):
        for name, weight in module.named_parameters():
            if "bias" in name:
                nn.init.zeros_(weight)
            elif "_hh_" in name:
                nn.init.orthogonal_(weight)
            else:
                nn.init.xavier_uniform_(weight)
        if isinstance(module, nn.LSTM):
            _, forget, _, _ = module.get_parameter("bias_ih_l0").chunk(4)
            nn.init.ones_(forget)


def check_positive_ints(**settings: object) -> None:
    """Each is a whole number of 1 or more: a width, a number of layers, of heads, of items."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name}={value!r}, expected a whole number, 1 or more")


def check_probabilities(**settings: object) -> None:
    """Each is a probability."""
    for name, value in settings.items():
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise InputError(f"{name}={value!r}, expected a share from 0 to 1")

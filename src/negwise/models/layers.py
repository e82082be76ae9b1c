"""Layers whose output does not depend on padding, weight initialization, and checks of settings.

N rows, L positions, E input width, D output width. A layer takes ``x`` (N, L, E) and ``mask`` (N, L), false at padding.
Softmax is undefined for a row that is all padding: such a row gives the zero vector, with gradient 0 and never NaN.

Recurrent layers run over rows of different lengths without packing: on cuDNN's plain path, without waiting for the
lengths. A state never depends on later positions, so padding on the right cannot change it.
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
"""Without cuDNN, which is slow at each new shape: about 100 ms on an H200, and every step has a new number of texts."""


class Dropout(nn.Module):
    """Zeroes each element with probability ``p`` while training and scales the others up, as `torch.nn.Dropout` does.

    On a CPU a third of its time: it draws 16 random bits for an element, so that ``p`` is rounded to 1 / 65,536.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        check_probabilities(dropout=p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        kept = round((1 - self.p) * 2**16)
        if not self.training or kept in (0, 2**16) or x.device.type != "cpu":
            return F.dropout(x, self.p, self.training)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)  # four elements in each
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        return x * (bits < kept - 2**15).to(x.dtype).mul_(2**16 / kept)


class AdditivePooling(nn.Module):
    """Weighted mean over positions with weights softmax(q . tanh(W x + b)): (N, L, E) -> (N, E)."""

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
    """Multi-head self-attention softmax(Q K' / sqrt d) V, heads concatenated: (N, L, E) -> (N, L, heads * d).

    ``bias`` adds biases to the three projections. ``dropout`` applies to the attention weights.
    """

    def __init__(self, width: int, heads: int, head_dim: int, *, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        check_positive_ints(heads=heads, head_dim=head_dim)
        self.heads = heads
        self.dropout = dropout
        self.projections = nn.Linear(width, 3 * heads * head_dim, bias=bias)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.projections(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        # A row that is all padding attends to every position: it stays finite, and no layer uses its output.
        key_mask = mask | ~mask.any(-1, keepdim=True)
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(SDPA_BACKENDS) if x.is_cuda else nullcontext():
            heads = F.scaled_dot_product_attention(query, key, value, key_mask[:, None, None, :], dropout)
        return heads.transpose(1, 2).flatten(2)  # from (N, heads, L, d)


class Convolution(nn.Module):
    """activation(conv(x)) over windows of ``window`` words, of the same length: (N, L, E) -> (N, L, filters).

    Padding is set to zeros, like the positions beyond the ends of the text, so the output does not depend on it.
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
    """A forward LSTM, one state per word: (N, L, E) -> (N, L, D). Padding is on the right."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        check_positive_ints(hidden=hidden)
        self.lstm = nn.LSTM(width, hidden, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002 - the pooling layer applies the mask
        states: Tensor = self.lstm(x)[0]
        return states


class GRULastState(nn.Module):
    """The state of a GRU after the last item: x (N, L, E), length (N,), start (N, D) -> (N, D).

    Padding is on the right. A row without items keeps its initial state.
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
    """``pooling(dropout(context(x)))``: x (N, L, E), mask (N, L) -> (N, D). All padding: the zero vector.

    ``context`` maps (N, L, E) and the mask to (N, L, D). Over words this encodes a text, over clicked news a user.
    """

    def __init__(self, context: nn.Module, width: int, pooling: int, dropout: float) -> None:
        super().__init__()
        self.context = context
        self.dropout = Dropout(dropout)
        self.pooling = AdditivePooling(width, pooling)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        pooled: Tensor = self.pooling(self.dropout(self.context(x, mask)), mask)
        return pooled


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis of ``scores`` (..., L) where ``mask`` is true; 0 elsewhere and in rows all masked."""
    # The lowest finite number is so far from any score that its exponential is exactly 0. Unlike -inf it gives
    # no NaN in rows that are all masked, forward and backward.
    lowest = torch.finfo(scores.dtype).min
    return torch.softmax(scores.masked_fill(~mask, lowest), -1) * mask


@torch.no_grad()
def init_xavier(module: nn.Module) -> None:
    """Keras' initialization, for ``model.apply``: Glorot-uniform weights, orthogonal recurrent weights, zero biases.

    Query, key and value are initialized as three matrices, although they are stored as one. The bias of an LSTM's
    forget gate is 1, so that the LSTM starts by remembering.
    """
    if isinstance(module, nn.Linear | nn.Conv1d):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, SelfAttention):  # after its Linear, which `apply` visits first
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
    """Raise unless each setting is a whole number from 1: a width, a number of layers, heads or items."""
    for name, value in settings.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise InputError(f"{name}={value!r}, expected a whole number, 1 or more")


def check_probabilities(**settings: object) -> None:
    """Raise unless each setting is a probability."""
    for name, value in settings.items():
        if not isinstance(value, Real) or not 0 <= float(value) <= 1:
            raise InputError(f"{name}={value!r}, expected a probability from 0 to 1")

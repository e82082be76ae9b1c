"""Many vectors into one: a layer in which places read each other, then additive attention over the places."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from negwise.models.attention import AdditivePooling, SelfAttention


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


@torch.no_grad()
def start_xavier(module: nn.Module) -> None:
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

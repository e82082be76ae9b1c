"""BERT4Rec (Sun et al., CIKM 2019): a Transformer that predicts masked items of a sequence. P masked items."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.draws import Key
from negwise.errors import InputError
from negwise.models.cloze import mask_sequence
from negwise.models.hyperparameters import BERT4REC as PAPER
from negwise.models.hyperparameters import (
    BERT4REC_LAST_RATE,
    BERT4REC_LAYERS,
    BERT4REC_MASK_RATE,
    BERT4REC_MAX_LENGTH,
    BERT4REC_STD,
    INNER_RATIO,
)
from negwise.models.layers import check_positive_ints, check_probabilities
from negwise.models.transformer import Transformer
from negwise.protocols import Query


class BERT4Rec(nn.Module):
    """Candidate: the embedding of the item. Query: ``LN(gelu(W h + b))`` of the last layer's h at a masked position.

    Items are 0..n_items - 1; the model writes ``mask_id`` = n_items at the positions to predict. Positions are counted
    from the end of the row. Training masks items among ``max_len``, so it reaches no position beyond that. With
    ``max_len`` items and a mask after them, the oldest item therefore shares the position of the one after it.
    There is no bias per item: LN adds the same vector to every query, and its product with an item's embedding acts
    as that bias. D = heads * head_dim.
    """

    needs_items = False
    graph_safe = True

    def __init__(
        self,
        n_items: int,
        *,
        heads: int = PAPER.heads,
        head_dim: int = PAPER.head_dim,
        layers: int = BERT4REC_LAYERS,
        max_len: int = BERT4REC_MAX_LENGTH,
        dropout: float = PAPER.dropout,
        mask_rate: float = BERT4REC_MASK_RATE,
        last_rate: float = BERT4REC_LAST_RATE,
    ) -> None:
        super().__init__()
        check_positive_ints(n_items=n_items, heads=heads, head_dim=head_dim, max_len=max_len)
        check_probabilities(dropout=dropout, mask_rate=mask_rate, last_rate=last_rate)
        width = heads * head_dim
        self.max_len = max_len
        self.mask_id = n_items
        self.mask_rate = mask_rate
        self.last_rate = last_rate
        self.items = nn.Embedding(n_items + 1, width)
        self.positions = nn.Embedding(max_len, width)
        self.transformer = Transformer(layers, heads, head_dim, INNER_RATIO * width, dropout, F.gelu)
        self.output = nn.Linear(width, width)
        self.output_norm = nn.LayerNorm(width)
        self.apply(_init_weights)

    def mask_items(self, query: Query, key: Key) -> tuple[Query, Tensor]:
        """Mask items for training: returns the query with P of its items masked, and those items (P,)."""
        masked = mask_sequence(query.items, query.mask, self.mask_rate, key, last_rate=self.last_rate)
        return Query(masked.items, query.mask, query.users, masked.positions), masked.targets

    @property
    def table(self) -> Tensor:
        """Vectors of all items, (n_items, D)."""
        return self.items.weight[: self.mask_id]

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """Item ids (N,) -> (N, D)."""
        return self.items(ids)

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: ARG002
        """Vectors at ``query.positions`` -> (P, D); if that is None, at a mask after each row -> (B, D)."""
        if query.items.shape[1] > self.max_len:
            raise InputError(
                f"a query has {query.items.shape[1]} positions, expected at most max_len={self.max_len}: "
                "keep the last items, or build the model with a larger max_len"
            )
        items, mask, masked_positions = query.items, query.mask, query.positions
        if masked_positions is None:
            rows = torch.arange(items.shape[0], device=items.device)
            masked_positions = torch.stack([rows, torch.full_like(rows, items.shape[1])], 1)
            items, mask = F.pad(items, (0, 1)), F.pad(mask, (0, 1), value=True)
        # Mask these positions in any case: a query must never see its target.
        # `torch.full` fills on the device; `new_tensor` would wait for a copy to it.
        mask_token = torch.full((), self.mask_id, dtype=items.dtype, device=items.device)
        items = items.index_put((masked_positions[:, 0], masked_positions[:, 1]), mask_token)
        from_end = (mask.sum(1, keepdim=True) - mask.cumsum(1)).clamp(0, self.max_len - 1)
        hidden = self.transformer(self.items(items) + self.positions(from_end), mask)
        return self.output_norm(F.gelu(self.output(hidden[masked_positions[:, 0], masked_positions[:, 1]])))


def _init_weights(module: nn.Module) -> None:
    """Initialize with truncated normal weights and zero biases, for ``model.apply``."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.trunc_normal_(module.weight, std=BERT4REC_STD, a=-2 * BERT4REC_STD, b=2 * BERT4REC_STD)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)

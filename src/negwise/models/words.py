"""Texts by number: a table of words per item that lives on the device, and the embedding of words.

Only ids of items travel; ``tokens[ids]`` gathers their words on the device. N items, L words, E width.
Word 0 is padding, on the right only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.models.settings import EMBEDDING_STD


def token_table(name: str, tokens: Any, n_words: int) -> Tensor:
    """Checks a table of words (N, L) and returns it as int32, without columns that are padding in every row."""
    table = _tensor(tokens)
    if table.dim() != 2 or table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
        came = f"{table.dtype} of shape {tuple(table.shape)}"
        raise InputError(f"{name} is {came}, expected numbers of words, integers of shape (items, words)")
    if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < n_words:
        span = f"{int(table.min())}..{int(table.max())}"
        raise InputError(f"{name} has numbers of words {span}, expected 0 (padding) to n_words - 1 = {n_words - 1}")
    real = table != 0
    inside = (~real[:, :-1] & real[:, 1:]).any(1)
    if inside.any():
        item = int(inside.nonzero()[0])
        raise InputError(f"{name}: item {item} has padding (0) before a word; expected padding on the right only")
    used = int(real.any(0).sum())
    # One column stays, so that layers which cannot take an empty text never see one.
    return table[:, : max(used, 1)].to(torch.int32).contiguous()


def id_table(name: str, ids: Any, count: int) -> Tensor:
    """Checks one number per item (N,), each below ``count`` and 0 for none, and returns them as int64."""
    table = _tensor(ids)
    if table.dim() != 1 or table.is_floating_point() or table.dtype == torch.bool:
        raise InputError(f"{name} is {table.dtype} of shape {tuple(table.shape)}, expected integers of shape (items,)")
    if len(table) and not 0 <= int(table.min()) <= int(table.max()) < count:
        raise InputError(f"{name} has numbers {int(table.min())}..{int(table.max())}, expected 0 to {count - 1}")
    return table.to(torch.int64)


def numbered(count: int, width: int) -> nn.Embedding:
    """Embeddings of ``count`` things, on the scale of words at the start; thing 0 is none, the zero vector."""
    return nn.Embedding(count, width, padding_idx=0, _weight=_start(count, width))


class Words(nn.Module):
    """Embeddings of words, with dropout: numbers (N, L) -> vectors (N, L, E) and the mask (N, L) of real words.

    ``vectors`` (n_words, E), where given, are the values at the start.
    """

    def __init__(self, n_words: int, width: int, dropout: float, vectors: Any = None) -> None:
        super().__init__()
        start = _start(n_words, width) if vectors is None else _checked(vectors, n_words)
        self.embedding = nn.Embedding(n_words, start.shape[1], padding_idx=0, _weight=start)
        self.dropout = nn.Dropout(dropout)

    @property
    def width(self) -> int:
        return self.embedding.embedding_dim

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.dropout(self.embedding(tokens)), tokens != 0


def _start(count: int, width: int) -> Tensor:
    start = torch.randn(count, width) * EMBEDDING_STD
    start[0] = 0
    return start


def _tensor(values: Any) -> Tensor:
    # A copy: arrays may be memory-mapped and not writable, which torch does not know.
    return values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))


def _checked(vectors: Any, n_words: int) -> Tensor:
    start = _tensor(vectors).detach().to(torch.float32, copy=True)
    if start.dim() != 2 or len(start) != n_words:
        came = tuple(start.shape)
        raise InputError(f"vectors have shape {came}, expected ({n_words}, width): one row per word of the vocabulary")
    start[0] = 0
    return start

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
from negwise.models.limits import counted, shares
from negwise.models.settings import EMBEDDING_STD
from negwise.models.vectors import Vectors


def token_table(name: str, tokens: Any, n_words: int) -> Tensor:
    """Checks a table of words (N, L) and returns it as int32, without columns that are padding in every row."""
    table = _integers(name, tokens, "numbers of words, integers of shape (items, words)", 2)
    if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < n_words:
        span = f"{int(table.min())}..{int(table.max())}"
        raise InputError(f"{name} has numbers of words {span}, expected 0 (padding) to n_words - 1 = {n_words - 1}")
    real = table != 0
    inside = (~real[:, :-1] & real[:, 1:]).any(1)
    if inside.any():
        item = int(inside.nonzero()[0])
        raise InputError(f"{name}: item {item} has padding (0) before a word; expected padding on the right only")
    used = int(real.any(0).sum())
    # One column of padding where there is no word at all: layers which cannot take an empty text never see one.
    table = table[:, :used] if used else table.new_zeros(len(table), 1)
    return table.to(torch.int32).contiguous()


def id_table(name: str, ids: Any, count: int) -> Tensor:
    """Checks one number per item (N,), each below ``count`` and 0 for none, and returns them as int64."""
    table = _integers(name, ids, "integers of shape (items,)", 1)
    if len(table) and not 0 <= int(table.min()) <= int(table.max()) < count:
        raise InputError(f"{name} has numbers {int(table.min())}..{int(table.max())}, expected 0 to {count - 1}")
    return table.clone()  # the model's own, whoever changes theirs


def same_items(**tables: Tensor) -> None:
    """Refuses tables that are not of the same items."""
    if len({len(table) for table in tables.values()}) > 1:
        counts = ", ".join(f"{name} {len(table)}" for name, table in tables.items())
        raise InputError(f"tables of different numbers of items: {counts}; expected one row per item in each")


def numbered(count: int, width: int) -> nn.Embedding:
    """Embeddings of ``count`` things, on the scale of words at the start; thing 0 is none, the zero vector."""
    return nn.Embedding(count, width, padding_idx=0, _weight=_start(count, width))


class Words(nn.Module):
    """Embeddings of words, with dropout: numbers (N, L) -> vectors (N, L, E) and the mask (N, L) of real words.

    ``vectors`` (n_words, E), where given, are the values at the start: an array, or what `load_vectors` returns.
    """

    def __init__(self, n_words: int, width: int, dropout: float, vectors: Any = None) -> None:
        super().__init__()
        counted(n_words=n_words, embedding=width)
        shares(dropout=dropout)
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


def _integers(name: str, values: Any, expected: str, dims: int) -> Tensor:
    table = _tensor(name, values, expected)
    if table.dim() != dims or table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
        raise InputError(f"{name} is {table.dtype} of shape {tuple(table.shape)}, expected {expected}")
    return table.to(torch.int64)  # unsigned types, which torch can hardly compute with, too


def _tensor(name: str, values: Any, expected: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        # A copy: arrays may be memory-mapped and not writable, which torch does not know.
        return torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:  # no array, or rows of different length
        raise InputError(f"{name} is a {type(values).__name__} that makes no array, expected {expected}") from error


def _checked(vectors: Any, n_words: int) -> Tensor:
    expected = f"numbers of shape ({n_words}, width), one row per word of the vocabulary"
    given = _tensor("vectors", vectors.table if isinstance(vectors, Vectors) else vectors, expected)
    start = given.detach().to(torch.float32, copy=True)
    if start.dim() != 2 or len(start) != n_words or not start.shape[1]:
        raise InputError(f"vectors have shape {tuple(start.shape)}, expected {expected}")
    if not start.isfinite().all():
        row = int((~start.isfinite()).any(1).nonzero()[0])
        raise InputError(f"vectors: row {row} has a value that is not finite in float32, expected {expected}")
    start[0] = 0
    return start

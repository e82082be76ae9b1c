"""NRMS (Wu et al., EMNLP 2019): self-attention over the words of a title and over the clicked news of a user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from negwise.models.hyperparameters import EMBEDDING_WIDTH, POOLING_WIDTH
from negwise.models.hyperparameters import NRMS as PAPER
from negwise.models.layers import Encoder, SelfAttention, init_xavier
from negwise.models.text import WordEmbedding, encode_by_length, token_table
from negwise.protocols import Query


class NRMS(nn.Module):
    """News: words -> self-attention -> additive attention. User: clicked news -> the same two. D = heads * head_dim.

    ``title`` (n_items, L) holds token ids below ``n_words``, 0 for padding. ``vectors`` (n_words, E) are optional
    initial word embeddings.
    """

    needs_items = True
    graph_safe = True
    title: Tensor

    def __init__(
        self,
        title: Any,
        n_words: int,
        *,
        heads: int = PAPER.heads,
        head_dim: int = PAPER.head_dim,
        dropout: float = PAPER.dropout,
        embedding: int = EMBEDDING_WIDTH,
        pooling: int = POOLING_WIDTH,
        vectors: Any = None,
    ) -> None:
        super().__init__()
        self.register_buffer("title", token_table("title", title, n_words), persistent=False)
        self.words = WordEmbedding(n_words, embedding, dropout, vectors)
        width = heads * head_dim
        self.news = Encoder(SelfAttention(self.words.width, heads, head_dim), width, pooling, dropout)
        self.reader = Encoder(SelfAttention(width, heads, head_dim), width, pooling, dropout)
        self.apply(init_xavier)

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """News ids (N,) -> (N, D)."""
        return self.encode_news(self.title[ids])

    def encode_news(self, title: Tensor) -> Tensor:
        """Token ids (N, L) of any titles -> (N, D)."""
        return encode_by_length(title, self.words, self.news)

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:
        """Clicked news of B users -> (B, D). A user without clicks is the zero vector."""
        return self.reader(item_vectors(query.items), query.mask)

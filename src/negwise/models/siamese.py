"""Siamese text models: one encoder for both sides of a text pair. Three of them differ only in the word layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.models.hyperparameters import (
    CNN_WINDOW,
    EMBEDDING_WIDTH,
    INNER_RATIO,
    POOLING_WIDTH,
    SIAMESE_CNN,
    SIAMESE_LSTM,
    SIAMESE_TRANSFORMER,
    TEXT_LAYERS,
    TEXT_TEMPERATURE,
)
from negwise.models.layers import Convolution, Encoder, LSTMLayer, check_positive_ints, init_xavier
from negwise.models.text import WordEmbedding, check_same_items, encode_by_length, token_table
from negwise.models.transformer import TextTransformer
from negwise.protocols import Query


class Siamese(nn.Module):
    """Encodes both sides with the same ``words`` and ``encoder``. See `siamese_transformer` and its two siblings.

    ``left``, ``right`` (n_items, L) hold token ids, 0 for padding. A query is the left side of its one item. With a
    ``temperature`` the score is cosine / temperature: candidate vectors have length 1, query vectors length
    1 / temperature. With None it is the plain dot product. A text without words is the zero vector.
    """

    needs_items = False
    graph_safe = True
    left: Tensor
    right: Tensor

    def __init__(
        self,
        left: Any,
        right: Any,
        words: WordEmbedding,
        encoder: Encoder,
        temperature: float | None = TEXT_TEMPERATURE,
    ) -> None:
        super().__init__()
        if temperature is not None and not (isinstance(temperature, int | float) and 0 < temperature < math.inf):
            raise InputError(f"temperature={temperature!r}, expected a number above 0, or None for plain dot products")
        n_words = words.embedding.num_embeddings
        self.register_buffer("left", token_table("left", left, n_words), persistent=False)
        self.register_buffer("right", token_table("right", right, n_words), persistent=False)
        check_same_items(left=self.left, right=self.right)
        self.words = words
        self.encoder = encoder
        self.temperature = temperature
        self.apply(init_xavier)

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """Ids of right sides (N,) -> (N, D)."""
        return self.encode_texts(self.right[ids], "right")

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:  # noqa: ARG002
        """Left sides of (B, 1) items -> (B, D)."""
        if query.items.shape[1] != 1:
            raise InputError(
                f"a query has {query.items.shape[1]} positions, expected 1: the item whose left side is the query"
            )
        return self.encode_texts(self.left[query.items[:, 0]] * query.mask, "left")

    def encode_texts(self, tokens: Tensor, side: str) -> Tensor:
        """Token ids (N, L) of any texts -> (N, D), as "left" sides, which ask, or as "right" ones."""
        vectors = encode_by_length(tokens, self.words, self.encoder)
        if self.temperature is None:
            return vectors
        # In bfloat16 the norm would be off by up to 0.4%.
        vectors = F.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
        return vectors / self.temperature if side == "left" else vectors


def siamese_transformer(
    left: Any,
    right: Any,
    n_words: int,
    *,
    heads: int = SIAMESE_TRANSFORMER.heads,
    head_dim: int = SIAMESE_TRANSFORMER.head_dim,
    layers: int = TEXT_LAYERS,
    dropout: float = SIAMESE_TRANSFORMER.dropout,
    temperature: float | None = TEXT_TEMPERATURE,
    embedding: int = EMBEDDING_WIDTH,
    pooling: int = POOLING_WIDTH,
    vectors: Any = None,
) -> Siamese:
    """A siamese model with a Transformer over words. D = heads * head_dim."""
    check_positive_ints(heads=heads, head_dim=head_dim)
    words = WordEmbedding(n_words, embedding, dropout, vectors)
    width = heads * head_dim
    context = TextTransformer(words.width, layers, heads, head_dim, INNER_RATIO * width, dropout)
    return Siamese(left, right, words, Encoder(context, width, pooling, dropout), temperature)


def siamese_cnn(
    left: Any,
    right: Any,
    n_words: int,
    *,
    hidden: int = SIAMESE_CNN.hidden,
    window: int = CNN_WINDOW,
    dropout: float = SIAMESE_CNN.dropout,
    temperature: float | None = TEXT_TEMPERATURE,
    embedding: int = EMBEDDING_WIDTH,
    pooling: int = POOLING_WIDTH,
    vectors: Any = None,
) -> Siamese:
    """A siamese model with a convolution over words. D = hidden."""
    words = WordEmbedding(n_words, embedding, dropout, vectors)
    context = Convolution(words.width, hidden, window, F.gelu)
    return Siamese(left, right, words, Encoder(context, hidden, pooling, dropout), temperature)


def siamese_lstm(
    left: Any,
    right: Any,
    n_words: int,
    *,
    hidden: int = SIAMESE_LSTM.hidden,
    dropout: float = SIAMESE_LSTM.dropout,
    temperature: float | None = TEXT_TEMPERATURE,
    embedding: int = EMBEDDING_WIDTH,
    pooling: int = POOLING_WIDTH,
    vectors: Any = None,
) -> Siamese:
    """A siamese model with an LSTM over words. D = hidden."""
    words = WordEmbedding(n_words, embedding, dropout, vectors)
    context = LSTMLayer(words.width, hidden)
    return Siamese(left, right, words, Encoder(context, hidden, pooling, dropout), temperature)

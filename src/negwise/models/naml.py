"""NAML (Wu et al., IJCAI 2019): several views of a news item, combined by attention. V views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from negwise.models.hyperparameters import CATEGORY_WIDTH, CNN_WINDOW, EMBEDDING_WIDTH, POOLING_WIDTH
from negwise.models.hyperparameters import NAML as PAPER
from negwise.models.layers import AdditivePooling, Convolution, Encoder, check_positive_ints, init_xavier
from negwise.models.text import (
    WordEmbedding,
    category_embedding,
    check_same_items,
    encode_by_length,
    id_table,
    token_table,
)
from negwise.protocols import Query


class CategoryView(nn.Module):
    """A category as a view: relu(W embedding + b), ids (N,) -> (N, D)."""

    def __init__(self, count: int, width: int, out: int) -> None:
        super().__init__()
        self.embedding = category_embedding(count, width)
        self.project = nn.Linear(width, out)

    def forward(self, ids: Tensor) -> Tensor:
        return torch.relu(self.project(self.embedding(ids)))


class NAML(nn.Module):
    """News: title and abstract by CNN and additive attention, category and subcategory by embedding and a dense
    layer, the four views by additive attention. User: clicked news by additive attention. D = hidden.

    ``title``, ``abstract`` (n_items, L) hold token ids below ``n_words``, 0 for padding. ``category``,
    ``subcategory`` (n_items,) hold ids below their counts, 0 for none. The attention masks views that an item lacks.
    """

    needs_items = True
    graph_safe = True
    title: Tensor
    abstract: Tensor
    category: Tensor
    subcategory: Tensor

    def __init__(
        self,
        title: Any,
        abstract: Any,
        category: Any,
        subcategory: Any,
        n_words: int,
        n_categories: int,
        n_subcategories: int,
        *,
        hidden: int = PAPER.hidden,
        dropout: float = PAPER.dropout,
        embedding: int = EMBEDDING_WIDTH,
        window: int = CNN_WINDOW,
        category_width: int = CATEGORY_WIDTH,
        pooling: int = POOLING_WIDTH,
        vectors: Any = None,
    ) -> None:
        super().__init__()
        check_positive_ints(hidden=hidden, category_width=category_width)
        self.register_buffer("title", token_table("title", title, n_words), persistent=False)
        self.register_buffer("abstract", token_table("abstract", abstract, n_words), persistent=False)
        self.register_buffer("category", id_table("category", category, n_categories), persistent=False)
        self.register_buffer("subcategory", id_table("subcategory", subcategory, n_subcategories), persistent=False)
        check_same_items(title=self.title, abstract=self.abstract, category=self.category, subcategory=self.subcategory)
        self.words = WordEmbedding(n_words, embedding, dropout, vectors)
        word_width = self.words.width
        self.title_view = Encoder(Convolution(word_width, hidden, window), hidden, pooling, dropout)
        self.abstract_view = Encoder(Convolution(word_width, hidden, window), hidden, pooling, dropout)
        self.category_view = CategoryView(n_categories, category_width, hidden)
        self.subcategory_view = CategoryView(n_subcategories, category_width, hidden)
        self.views = AdditivePooling(hidden, pooling)
        self.reader = AdditivePooling(hidden, pooling)
        self.apply(init_xavier)

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """News ids (N,) -> (N, D)."""
        return self.encode_news(self.title[ids], self.abstract[ids], self.category[ids], self.subcategory[ids])

    def encode_news(self, title: Tensor, abstract: Tensor, category: Tensor, subcategory: Tensor) -> Tensor:
        """Token ids (N, L) and category ids (N,) of any news -> (N, D)."""
        views = [
            encode_by_length(title, self.words, self.title_view),
            encode_by_length(abstract, self.words, self.abstract_view),
            self.category_view(category),
            self.subcategory_view(subcategory),
        ]
        present = [title[:, 0] != 0, abstract[:, 0] != 0, category != 0, subcategory != 0]
        return self.views(torch.stack(views, 1), torch.stack(present, 1))  # (N, V, D), (N, V)

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:
        """Clicked news of B users -> (B, D). A user without clicks is the zero vector."""
        return self.reader(item_vectors(query.items), query.mask)

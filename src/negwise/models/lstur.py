"""LSTUR (An et al., ACL 2019): short-term interests by a GRU over clicks, long-term ones by a user embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.models.hyperparameters import (
    CATEGORY_WIDTH,
    CNN_WINDOW,
    EMBEDDING_WIDTH,
    POOLING_WIDTH,
    USER_MASK_RATE,
    USER_VARIANT,
)
from negwise.models.hyperparameters import LSTUR as PAPER
from negwise.models.layers import (
    Convolution,
    Encoder,
    GRULastState,
    check_positive_ints,
    check_probabilities,
    init_xavier,
)
from negwise.models.text import (
    WordEmbedding,
    category_embedding,
    check_same_items,
    encode_by_length,
    id_table,
    token_table,
)
from negwise.protocols import Query


class LSTUR(nn.Module):
    """News: title by CNN and additive attention, concatenated with embeddings of category and subcategory.

    ``title`` (n_items, L) holds token ids below ``n_words``, 0 for padding. ``category``, ``subcategory`` (n_items,)
    hold ids below their counts, 0 for none, which is the zero vector.

    User, ``variant="ini"``: the long-term vector of the user is the initial state of the GRU over the clicked news.
    ``"con"``: the GRU starts at 0, and its last state (half of D) is concatenated with the long-term vector.
    D = hidden + 2 * category_width. In training, a long-term vector is set to 0 with probability ``user_mask_rate``.
    Its initial value is 0 too, so that the model can serve unknown users.
    """

    needs_items = True
    graph_safe = True
    title: Tensor
    category: Tensor
    subcategory: Tensor

    def __init__(
        self,
        title: Any,
        category: Any,
        subcategory: Any,
        n_words: int,
        n_categories: int,
        n_subcategories: int,
        n_users: int,
        *,
        variant: str = USER_VARIANT,
        hidden: int = PAPER.hidden,
        dropout: float = PAPER.dropout,
        user_mask_rate: float = USER_MASK_RATE,
        embedding: int = EMBEDDING_WIDTH,
        window: int = CNN_WINDOW,
        category_width: int = CATEGORY_WIDTH,
        pooling: int = POOLING_WIDTH,
        vectors: Any = None,
    ) -> None:
        super().__init__()
        if variant not in ("ini", "con"):
            raise InputError(f"variant={variant!r}, expected 'ini' or 'con'")
        check_positive_ints(hidden=hidden, category_width=category_width, n_users=n_users)
        check_probabilities(user_mask_rate=user_mask_rate)
        self.register_buffer("title", token_table("title", title, n_words), persistent=False)
        self.register_buffer("category", id_table("category", category, n_categories), persistent=False)
        self.register_buffer("subcategory", id_table("subcategory", subcategory, n_subcategories), persistent=False)
        check_same_items(title=self.title, category=self.category, subcategory=self.subcategory)
        self.variant = variant
        self.user_mask_rate = user_mask_rate
        width = hidden + 2 * category_width
        gru_width = width if variant == "ini" else width - width // 2
        self.words = WordEmbedding(n_words, embedding, dropout, vectors)
        self.title_view = Encoder(Convolution(self.words.width, hidden, window), hidden, pooling, dropout)
        self.category_view = category_embedding(n_categories, category_width)
        self.subcategory_view = category_embedding(n_subcategories, category_width)
        self.users = nn.Embedding(n_users, width if variant == "ini" else width // 2)
        self.recent = GRULastState(width, gru_width)
        self.apply(init_xavier)
        nn.init.zeros_(self.users.weight)

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """News ids (N,) -> (N, D)."""
        return self.encode_news(self.title[ids], self.category[ids], self.subcategory[ids])

    def encode_news(self, title: Tensor, category: Tensor, subcategory: Tensor) -> Tensor:
        """Token ids (N, L) and category ids (N,) of any news -> (N, D)."""
        view = encode_by_length(title, self.words, self.title_view)
        first, second = self.category_view(category), self.subcategory_view(subcategory)
        return torch.cat([view, first.to(view.dtype), second.to(view.dtype)], 1)

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:
        """Clicked news of B users -> (B, D). Without clicks only the long-term vector remains.

        Outside training, user -1 is a person whom training did not see: the long-term vector is 0.
        """
        # Padding may be anywhere. Move ids to the left in their order, not vectors, which are hundreds of times wider.
        order = torch.argsort(query.mask.logical_not().byte(), dim=1, stable=True)
        news, length = item_vectors(query.items.gather(1, order)), query.mask.sum(1)
        if not self.training:
            long_term = self.users(query.users.clamp(min=0)) * (query.users >= 0)[:, None]
        else:
            long_term = self.users(query.users)
            kept = torch.rand(len(long_term), 1, device=long_term.device) >= self.user_mask_rate
            long_term = long_term * kept
        if self.variant == "ini":
            return self.recent(news, length, long_term)
        start = news.new_zeros(len(news), self.recent.gru.hidden_size)
        recent = self.recent(news, length, start)
        return torch.cat([recent, long_term.to(recent.dtype)], 1)

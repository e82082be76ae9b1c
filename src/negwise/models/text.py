"""Texts of items as tables of token ids on the device, word embeddings, and encoding of texts by length.

Batches hold item ids only; ``tokens[ids]`` gathers their token ids on the device. N items, L words, E width.
Token 0 is padding, on the right only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from negwise.errors import InputError, quote
from negwise.models.hyperparameters import EMBEDDING_STD
from negwise.models.layers import Dropout, check_positive_ints
from negwise.models.word_vectors import WordVectors
from negwise.words import split_words

CHUNKS = 6
"""Most chunks of a token table on a CPU. More chunks save little padding."""
CHUNK_TOKENS = 2**11
"""Tokens that are worth a chunk, padding included."""
COMPILED_FROM = 1024
"""Texts at a time that are worth the time to load numba, which cuts ASCII texts many times as fast."""
PADDING, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")
Tokens = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class WordTokenizer:
    """``words[0]`` is padding, ``words[1]`` the unknown word, the others by decreasing count in training."""

    words: tuple[str, ...]

    @classmethod
    def train(
        cls, texts: Sequence[WordIds], word_list: Sequence[str], min_count: int = 1, max_words: int | None = None
    ) -> WordTokenizer:
        """From word ids of the training texts: words with ``min_count`` occurrences or more, at most ``max_words``."""
        if min_count < 1 or (max_words is not None and max_words < 1):
            raise InputError(f"min_count={min_count}, max_words={max_words}: expected 1 or more")
        counts = sum((np.bincount(each.ids, minlength=len(word_list)) for each in texts), np.zeros(len(word_list), int))
        order = np.argsort(-counts, kind="stable")
        kept = order[counts[order] >= min_count][:max_words]
        return cls((*SPECIAL, *(word_list[at] for at in kept)))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, texts: Iterable[str], length: int, first: int = 0) -> Tokens:
        """Texts as (N, L) token ids, cut or padded to ``length``; ``first`` is the number of the first, for errors."""
        _check_length(length)
        texts = _as_texts(texts, first)
        if len(texts) < COMPILED_FROM or find_spec("numba") is None:
            return self._encode_plainly(texts, length)
        if "".join(texts).isascii():
            return self._table.encode(texts, length, UNKNOWN)
        tokens = np.empty((len(texts), length), np.int32)
        ascii_ = np.fromiter(map(str.isascii, texts), bool, len(texts))
        tokens[ascii_] = self._table.encode([text for text in texts if text.isascii()], length, UNKNOWN)
        tokens[~ascii_] = self._encode_plainly([text for text in texts if not text.isascii()], length)
        return tokens

    def _encode_plainly(self, texts: Sequence[str], length: int) -> Tokens:
        """One text after another, in any alphabet."""
        rows = [[self._number.get(word, UNKNOWN) for word in split_words(text)[:length]] for text in texts]
        return np.array([row + [PADDING] * (length - len(row)) for row in rows], np.int32).reshape(-1, length)

    def encode_words(self, texts: WordIds, word_list: Sequence[str], length: int) -> Tokens:
        """The same for texts that are word ids of ``word_list``."""
        _check_length(length)
        mine = np.array([self._number.get(word, UNKNOWN) for word in word_list] or [UNKNOWN], np.int32)
        place = np.arange(length)
        inside = place < np.diff(texts.offsets)[:, None]
        at = np.where(inside, texts.offsets[:-1, None] + place, 0)
        tokens = mine[texts.ids[at]] if len(texts.ids) else np.zeros(at.shape, np.int32)
        return np.where(inside, tokens, PADDING).astype(np.int32)

    @cached_property
    def _table(self) -> Any:
        from negwise.models.compiled_words import WordTable

        return WordTable.of(self._number)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(self.words) if at > UNKNOWN}

    def to_json(self, **more: Any) -> bytes:
        """The content of ``tokenizer.json``; ``more`` says what else belongs to it, as lengths."""
        return json.dumps({"kind": "words", "words": self.words, **more}, ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, content: bytes) -> WordTokenizer:
        """The inverse of `to_json`."""
        found = json.loads(content)
        if not isinstance(found, dict) or found.get("kind") != "words" or tuple(found["words"][:2]) != SPECIAL:
            raise InputError("tokenizer.json: not a tokenizer of words. Restore it from the folder of the run.")
        return cls(tuple(found["words"]))


class WordEmbedding(nn.Module):
    """Word embeddings with dropout: token ids (N, L) -> vectors (N, L, E) and the mask (N, L), false at padding.

    ``vectors`` (n_words, E) are optional initial values: an array, or the result of `load_vectors`.
    """

    def __init__(self, n_words: int, width: int, dropout: float, vectors: Any = None) -> None:
        super().__init__()
        check_positive_ints(n_words=n_words, embedding=width)
        initial = _random_embeddings(n_words, width) if vectors is None else _check_vectors(vectors, n_words)
        self.embedding = nn.Embedding(n_words, initial.shape[1], padding_idx=0, _weight=initial)
        self.dropout = Dropout(dropout)

    @property
    def width(self) -> int:
        return self.embedding.embedding_dim

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.dropout(self.embedding(tokens)), tokens != 0


def encode_by_length(tokens: Tensor, words: WordEmbedding, encoder: nn.Module) -> Tensor:
    """``encoder(*words(tokens))``, (N, L) -> (N, D), for an encoder that ignores padding.

    Most of a table of titles is padding. On a CPU, texts are sorted by length and encoded in chunks as wide as their
    longest text. A GPU encodes the whole table: on an H200 the launches of a second chunk take longer than the padding.
    """
    chunks = min(CHUNKS, tokens.numel() // CHUNK_TOKENS, len(tokens))
    if chunks < 1 or tokens.device.type != "cpu":
        return encoder(*words(tokens))
    length, order = (tokens != 0).sum(1).sort(stable=True)
    # Keep one column: some layers cannot take an empty text.
    widths = [max(1, int(part[-1])) for part in length.tensor_split(chunks)]
    # Chunks look up a table of the words that are here: the gradient of all words is then made once, not once a chunk.
    distinct, places = torch.unique(tokens, return_inverse=True)
    table = words.embedding(distinct)
    parts = [
        encoder(words.dropout(F.embedding(places[part][:, :width], table)), tokens[part][:, :width] != 0)
        for part, width in zip(order.tensor_split(chunks), widths, strict=True)
    ]
    return torch.cat(parts).index_select(0, order.argsort())


def category_embedding(count: int, width: int) -> nn.Embedding:
    """Embeddings of ``count`` categories, initialized like words. Category 0 means none: the zero vector."""
    return nn.Embedding(count, width, padding_idx=0, _weight=_random_embeddings(count, width))


def token_table(name: str, tokens: Any, n_words: int) -> Tensor:
    """Check a table of token ids (N, L). Return it as int32, without columns that are padding in every row."""
    table = _to_integers(name, tokens, "token ids, integers of shape (items, words)", 2)
    if table.numel() and not 0 <= int(table.min()) <= int(table.max()) < n_words:
        span = f"{int(table.min())}..{int(table.max())}"
        raise InputError(f"{name} has token ids {span}, expected 0 (padding) to n_words - 1 = {n_words - 1}")
    is_word = table != 0
    padding_first = (~is_word[:, :-1] & is_word[:, 1:]).any(1)
    if padding_first.any():
        item = int(padding_first.nonzero()[0])
        raise InputError(f"{name}: item {item} has padding (0) before a word; expected padding on the right only")
    used = int(is_word.any(0).sum())
    # One column of padding if there is no word at all: some layers cannot take an empty text.
    table = table[:, :used] if used else table.new_zeros(len(table), 1)
    return table.to(torch.int32).contiguous()


def id_table(name: str, ids: Any, count: int) -> Tensor:
    """Check one id per item (N,), below ``count``, 0 for none. Return them as int64."""
    table = _to_integers(name, ids, "integers of shape (items,)", 1)
    if len(table) and not 0 <= int(table.min()) <= int(table.max()) < count:
        raise InputError(f"{name} has ids {int(table.min())}..{int(table.max())}, expected 0 to {count - 1}")
    return table.clone()  # a copy, so that changes to the input do not reach the model


def check_same_items(**tables: Tensor) -> None:
    """Raise unless all tables have the same number of items."""
    if len({len(table) for table in tables.values()}) > 1:
        counts = ", ".join(f"{name} {len(table)}" for name, table in tables.items())
        raise InputError(f"tables with different numbers of items: {counts}; expected one row per item in each")


def _random_embeddings(count: int, width: int) -> Tensor:
    initial = torch.randn(count, width) * EMBEDDING_STD
    initial[0] = 0
    return initial


def _check_vectors(vectors: Any, n_words: int) -> Tensor:
    expected = f"numbers of shape ({n_words}, width), one row per word of the vocabulary"
    given = _to_tensor("vectors", vectors.table if isinstance(vectors, WordVectors) else vectors, expected)
    initial = given.detach().to(torch.float32, copy=True)
    if initial.dim() != 2 or len(initial) != n_words or not initial.shape[1]:
        raise InputError(f"vectors have shape {tuple(initial.shape)}, expected {expected}")
    if not initial.isfinite().all():
        row = int((~initial.isfinite()).any(1).nonzero()[0])
        raise InputError(f"vectors: row {row} has a value that is not finite in float32; expected {expected}")
    initial[0] = 0
    return initial


def _to_integers(name: str, values: Any, expected: str, dims: int) -> Tensor:
    table = _to_tensor(name, values, expected)
    if table.dim() != dims or table.is_floating_point() or table.is_complex() or table.dtype == torch.bool:
        raise InputError(f"{name} is {table.dtype} of shape {tuple(table.shape)}, expected {expected}")
    return table.to(torch.int64)  # also from unsigned types, which torch hardly supports


def _to_tensor(name: str, values: Any, expected: str) -> Tensor:
    if isinstance(values, Tensor):
        return values
    try:
        # A copy: memory-mapped arrays may be read-only, which torch does not support.
        return torch.from_numpy(np.array(values))
    except (TypeError, ValueError) as error:  # not an array, or rows of different lengths
        raise InputError(
            f"{name} is a {type(values).__name__} that cannot become an array, expected {expected}"
        ) from error


class WordIds(Protocol):
    """Texts as word ids: text r has ``ids[offsets[r]:offsets[r + 1]]``."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...

    @property
    def ids(self) -> NDArray[np.int64]: ...


def _as_texts(texts: Iterable[str], first: int) -> list[str]:
    if isinstance(texts, str):
        raise InputError(f"texts is one text, {quote(texts)}, expected several: [{quote(texts)}]")
    found = list(texts)
    if not all(issubclass(kind, str) for kind in set(map(type, found))):
        at = next(at for at, text in enumerate(found) if not isinstance(text, str))
        raise InputError(f"texts[{first + at}] is {quote(found[at])}, a {type(found[at]).__name__}, expected a text")
    return found


def _check_length(length: int) -> None:
    if length < 1:
        raise InputError(f"length={length}, expected 1 or more")

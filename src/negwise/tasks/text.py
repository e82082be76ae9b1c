"""Texts of a task as a model reads them: token ids by the model's tokenizer, and categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise.datasets import TaskData
from negwise.models import WordTokenizer
from negwise.models.hyperparameters import BODY_WORDS, TITLE_WORDS


@dataclass(frozen=True, eq=False)
class TokenizedTexts:
    """``tokens["title"]`` and ``tokens["body"]`` (N, L) int32, and the tokenizer that made them."""

    tokenizer: WordTokenizer
    tokens: Mapping[str, NDArray[np.int32]]


def tokenize(
    data: TaskData, *, title_words: int = TITLE_WORDS, body_words: int = BODY_WORDS, min_count: int = 1
) -> TokenizedTexts | None:
    """Train a tokenizer on the training texts of ``data`` and number all texts; None where there are none."""
    texts = data.texts
    if texts is None:
        return None
    if texts.vocabulary is not None:
        tokenizer = WordTokenizer(texts.vocabulary)
    else:
        fields = list(texts.fields.values())
        training = [field.words.take(texts.training_rows) for field in fields]
        tokenizer = WordTokenizer.train(training, fields[0].word_list, min_count)
    lengths = {"title": title_words, "body": body_words}
    tokens = {
        name: tokenizer.encode_words(field.words, field.word_list, lengths[name])
        for name, field in texts.fields.items()
    }
    return TokenizedTexts(tokenizer, tokens)


def model_content(data: TaskData, texts: TokenizedTexts | None) -> dict[str, Any]:
    """What models are built from, by the names that they use: token tables, categories and counts."""
    found: dict[str, Any] = {"n_items": data.n_items, "n_users": data.n_users}
    if texts is not None and data.texts is not None:
        title, body = ("left", "right") if data.name == "pairs" else ("title", "abstract")
        found |= {title: texts.tokens["title"], body: texts.tokens["body"], **data.texts.categories}
        found["n_words"] = len(texts.tokenizer)
    return found

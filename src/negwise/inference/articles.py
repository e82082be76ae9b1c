"""News articles that no data set had, as what a news model reads: token ids and category numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise.datasets.frames import to_table
from negwise.errors import InputError, quote
from negwise.inference.encoding import tokens_of
from negwise.inference.given_values import columns_of
from negwise.models import WordTokenizer
from negwise.records import ModelRecord

FIELDS = {"title": "title", "abstract": "body"}
"""The texts of an article, and whose number of words each is cut to."""
CATEGORIES = ("category", "subcategory")


@dataclass(frozen=True, eq=False)
class ArticleReader:
    """Reads articles for the model of ``record``; ``wanted`` are the arguments of its ``encode_news``."""

    tokenizer: WordTokenizer
    record: ModelRecord
    wanted: tuple[str, ...]

    def read(self, articles: Sequence[Any], first: int = 0) -> dict[str, Tensor]:
        """Arguments of ``encode_news`` for articles: a text is a title; a mapping has ``title`` and, where there are
        some, ``abstract`` (or else ``body``), ``category`` and ``subcategory``. ``first`` is their first number."""
        rows = [_as_mapping(one, first + place) for place, one in enumerate(articles)]
        found: dict[str, Tensor] = {}
        for name in self.wanted:
            if name in FIELDS:
                texts = [_text(row, name) for row in rows]
                found[name] = tokens_of(self.tokenizer, texts, self.record.lengths[FIELDS[name]], first)
            else:
                numbers = {one: number for number, one in enumerate(self.record.categories.get(name, ("",)))}
                found[name] = torch.from_numpy(
                    np.array([_category(name, row.get(name) or "", numbers) for row in rows], np.int64)
                )
        return found


def as_rows(articles: Any) -> Any:
    """The rows of a frame or a table; other iterables as they are."""
    tabular = columns_of(articles) is not None and not isinstance(articles, Mapping)
    return to_table(articles).to_pylist() if tabular else articles


def _as_mapping(article: Any, place: int) -> Mapping[str, Any]:
    row = {"title": article} if isinstance(article, str) else article
    if not isinstance(row, Mapping) or not isinstance(row.get("title"), str):
        raise InputError(
            f"articles: number {place} is {quote(article)}, expected a title, or an object with one and, where there "
            "are some, abstract, category and subcategory."
        )
    return row


def _text(row: Mapping[str, Any], name: str) -> Any:
    """The text ``name`` of an article; an abstract may be called a body, as in text pairs."""
    found = row.get(name)
    return (row.get("body") if found is None and name == "abstract" else found) or ""


def _category(name: str, value: Any, numbers: Mapping[str, int]) -> int:
    if value not in numbers:
        known = ", ".join(quote(one) for one in list(numbers)[1:6])
        raise InputError(
            f"{name}: got {quote(value)}, which training did not see; expected one of {known}, ... Leave it out, which "
            "means none."
        )
    return numbers[value]

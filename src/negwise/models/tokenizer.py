"""The tokenizer of the text models here: the words of the training split, numbered. It is saved with the model.

N texts, L positions. Token 0 is padding, token 1 an unknown word.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from negwise.errors import InputError
from negwise.words import split_words

PADDING, UNKNOWN = 0, 1
SPECIAL = ("<pad>", "<unk>")
Tokens = NDArray[np.int32]


class WordIds(Protocol):
    """Texts as word ids: text r has ``ids[offsets[r]:offsets[r + 1]]``."""

    @property
    def offsets(self) -> NDArray[np.int64]: ...

    @property
    def ids(self) -> NDArray[np.int64]: ...


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

    def encode(self, texts: Iterable[str], length: int) -> Tokens:
        """Texts as (N, L) token ids, cut or padded to ``length``."""
        _check_length(length)
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


def _check_length(length: int) -> None:
    if length < 1:
        raise InputError(f"length={length}, expected 1 or more")

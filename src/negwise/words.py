"""Splitting texts into words: one function for the readers of data and for the tokenizer of models."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def split_words(text: str) -> list[str]:
    """Words of a text: runs of letters and digits in lower case, with apostrophes inside a word.

    >>> split_words("Bob's 2 dogs_ran.")
    ["bob's", '2', 'dogs', 'ran']
    """
    return _WORD.findall(text.lower())


def has_words(text: str) -> bool:
    """Whether ``text`` has at least one word."""
    return _WORD.search(text) is not None

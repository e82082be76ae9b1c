"""Splitting texts into words: one function for the readers of data and for the tokenizer of models."""

from __future__ import annotations

import re

# Scripts that put no breaks between words: Thai, Lao, Myanmar, Khmer; Chinese characters, Hiragana, Katakana.
_UNBROKEN = "\u0e01-\u0e4e\u0e81-\u0edf\u1000-\u109f\u1780-\u17d3\u2e80-\u2fdf\u3005-\u3007\u3041-\u30ff\u31f0-\u31ff"
_UNBROKEN += "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_CHARACTER = re.compile(rf"(?![\W_])[{_UNBROKEN}]")
_LETTER = rf"[^\W_{_UNBROKEN}]"
_WORD_OR_CHARACTER = re.compile(rf"{_LETTER}+(?:'{_LETTER}+)*|{_CHARACTER.pattern}")


def split_words(text: str) -> list[str]:
    """Words of a text: runs of letters and digits in lower case, with apostrophes inside a word.

    In a text without word breaks, as Chinese is written, each such character is a word, as BERT has it. That is a text
    with more of these characters than runs; a foreign word in another text stays whole.

    >>> split_words("Bob's 2 dogs_ran.")
    ["bob's", '2', 'dogs', 'ran']
    >>> split_words("K 个负样本")
    ['k', '个', '负', '样', '本']
    """
    lower = text.lower()
    words = _WORD.findall(lower)
    if text.isascii() or len(_CHARACTER.findall(lower)) <= len(words):
        return words
    return _WORD_OR_CHARACTER.findall(lower)


def is_unbroken(word: str) -> bool:
    """Whether ``word`` is a character of a script without word breaks."""
    return len(word) == 1 and not word.isascii() and _CHARACTER.fullmatch(word) is not None

"""The tokenizer against plain Python, and that it comes back from its file."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.models import WordTokenizer
from negwise.models.text import COMPILED_FROM, SPECIAL
from negwise.words import split_words

TEXTS = ["The cat; the dog's 2 toys.", "", "snake_case and na\u00efve caf\u00e9", "the the THE"]


def number_words(texts):
    """Texts as word ids of their own word list."""
    number = {}
    rows = [[number.setdefault(word, len(number)) for word in split_words(text)] for text in texts]
    return Ragged.of(rows), list(number)


@pytest.mark.parametrize(("min_count", "max_words"), [(1, None), (2, None), (1, 3)])
def test_a_tokenizer_counts_the_training_texts(min_count, max_words):
    texts, word_list = number_words(TEXTS)
    tokenizer = WordTokenizer.train([texts.take(np.array([0, 3]))], word_list, min_count, max_words)
    count = Counter(word for text in (TEXTS[0], TEXTS[3]) for word in split_words(text))
    order = [word for word, n in count.most_common() if n >= min_count][:max_words]
    assert tokenizer.words == ("<pad>", "<unk>", *order)
    table = tokenizer.encode_words(texts, word_list, 4)
    assert np.array_equal(table, tokenizer.encode(TEXTS, 4)) and table.dtype == np.int32
    for row, text in zip(table, TEXTS, strict=True):
        found = [tokenizer.words.index(word) if word in order else 1 for word in split_words(text)][:4]
        assert row.tolist() == found + [0] * (4 - len(found))


def test_a_tokenizer_comes_back_from_its_file():
    texts, word_list = number_words(TEXTS)
    tokenizer = WordTokenizer.train([texts], word_list)
    again = WordTokenizer.from_json(tokenizer.to_json(title=20))
    assert again.words == tokenizer.words and len(again) == len(tokenizer)
    assert np.array_equal(again.encode(["the caf\u00e9 unheard"], 5), tokenizer.encode(["the caf\u00e9 unheard"], 5))
    for broken in (b"[]", b'{"kind": "bpe", "words": []}', b'{"kind": "words", "words": ["a", "b"]}'):
        with pytest.raises(InputError, match="not a tokenizer of words"):
            WordTokenizer.from_json(broken)


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="length=0"):
        WordTokenizer(("<pad>", "<unk>")).encode_words(Ragged.of([[]]), [], 0)
    with pytest.raises(InputError, match="min_count=0"):
        WordTokenizer.train([], [], 0)
    tokenizer = WordTokenizer(("<pad>", "<unk>"))
    assert tokenizer.encode([], 3).shape == (0, 3)
    with pytest.raises(InputError, match="texts is one text"):
        tokenizer.encode("two words", 3)
    for many in (1, COMPILED_FROM):
        with pytest.raises(InputError, match=r"texts\[1\] is None, a NoneType, expected a text"):
            tokenizer.encode(["word", None] * many, 3)


APART = ["the", "The", "dog's", "dog", "'", "''", "_", " ", "\n", "2", "x1", "a" * 40]
PIECES = [*APART, "na\u00efve", "\u212a", "\u4e2a", "\x00"]


@settings(deadline=None, max_examples=60)
@given(
    texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map("".join) | st.text(max_size=12), max_size=9),
    words=st.lists(st.sampled_from([*APART[:4], "na\u00efve", "k", "a" * 39, "a" * 40, "x1", "2"]), unique=True),
    length=st.integers(1, 5),
)
def test_many_texts_are_cut_by_a_compiled_loop_into_the_same(texts, words, length):
    pytest.importorskip("numba")
    tokenizer = WordTokenizer((*SPECIAL, *(word.lower() for word in words)))
    many = texts * (COMPILED_FROM // max(len(texts), 1) + 1) if texts else []
    found = tokenizer.encode(many, length)
    plain = [[tokenizer._number.get(word, 1) for word in split_words(one)][:length] for one in texts]
    rows = np.array([row + [0] * (length - len(row)) for row in plain], np.int32).reshape(-1, length)
    assert found.dtype == np.int32 and np.array_equal(found, np.tile(rows, (len(many) // max(len(texts), 1), 1)))


def test_words_with_the_same_place_in_the_table_are_told_apart():
    """With so many words in a table of so few places, most share one."""
    pytest.importorskip("numba")
    words = [f"w{number}" for number in range(5000)]
    tokenizer = WordTokenizer((*SPECIAL, *words[::2]))
    expected = [2 + number // 2 if number % 2 == 0 else 1 for number in range(5000)]
    assert tokenizer.encode(words, 1)[:, 0].tolist() == expected

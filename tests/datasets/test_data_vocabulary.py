"""Tokens and vocabularies against plain Python."""

from collections import Counter

import numpy as np
import pytest

from negwise.datasets import Ragged, Vocabulary, split_words
from negwise.datasets.ragged import difference
from negwise.datasets.timestamps import parse_mind_timestamp, parse_timestamp
from negwise.datasets.vocabulary import number_categories
from negwise.errors import InputError

TEXTS = ["The cat; the dog's 2 toys.", "", "snake_case and naïve café", "the the THE"]


def number_words(texts):
    """Texts as numbers into their own word list."""
    number = {}
    return Ragged.of([[number.setdefault(word, len(number)) for word in split_words(text)] for text in texts]), list(
        number
    )


def test_words():
    assert split_words(TEXTS[0]) == ["the", "cat", "the", "dog's", "2", "toys"]
    assert split_words(TEXTS[2]) == ["snake", "case", "and", "naïve", "café"]
    assert split_words("...") == []


@pytest.mark.parametrize(("min_count", "most"), [(1, None), (2, None), (1, 3)])
def test_vocabulary_counts_what_it_is_given(min_count, most):
    texts, file_words = number_words(TEXTS)
    taught = texts.take(np.array([0, 3]))
    vocabulary = Vocabulary.of([taught], file_words, min_count, most)
    count = Counter(word for text in (TEXTS[0], TEXTS[3]) for word in split_words(text))
    order = [word for word, n in count.most_common() if n >= min_count][:most]
    assert vocabulary.words == ("<pad>", "<unk>", *order)
    table = vocabulary.table(texts, file_words, 4)
    for row, text in zip(table, TEXTS, strict=True):
        assert row.tolist() == vocabulary.encode(text, 4).tolist()
        found = [vocabulary.words.index(word) if word in order else 1 for word in split_words(text)][:4]
        assert row.tolist() == found + [0] * (4 - len(found))


def test_categories_by_count():
    numbers, names = number_categories(["b", "a", "", "a"])
    assert names == ("", "a", "b") and numbers.tolist() == [2, 1, 0, 1]


def test_lengths_are_checked():
    with pytest.raises(InputError, match="length=0"):
        Vocabulary(("<pad>", "<unk>")).table(Ragged.of([[]]), [], 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("11/11/2019 12:00:00 AM", "2019-11-11T00:00:00"),
        ("11/11/2019 12:30:05 PM", "2019-11-11T12:30:05"),
        ("2/9/2020 1:02:03 AM", "2020-02-09T01:02:03"),
        ("11/11/2019 11:59:59 PM", "2019-11-11T23:59:59"),
    ],
)
def test_the_clock_of_mind(text, expected):
    assert parse_mind_timestamp(text) == np.datetime64(expected, "ms").astype(int)


@pytest.mark.parametrize(
    "text", ["", "11/11/2019", "11/11/2019 13:00:00 PM", "2/30/2019 1:00:00 AM", "a/b/c 1:00:00 AM"]
)
def test_what_is_no_clock(text):
    assert parse_mind_timestamp(text) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (978300760, "2000-12-31T22:12:40"),
        ("978300760", "2000-12-31T22:12:40"),
        (978300760123, "2000-12-31T22:12:40.123"),
        ("2000-12-31T22:12:40+00:00", "2000-12-31T22:12:40"),
        ("2000-12-31", "2000-12-31"),
    ],
)
def test_moments(value, expected):
    assert parse_timestamp(value) == np.datetime64(expected, "ms").astype(int)


@pytest.mark.parametrize("value", [None, "", "soon", float("nan"), True, 1e30, [1]])
def test_what_is_no_moment(value):
    assert parse_timestamp(value) is None


def test_ragged():
    rows = [[3, 1], [], [2, 2, 5]]
    lists = Ragged.of(rows)
    assert [lists[at].tolist() for at in range(3)] == rows and lists.rows.tolist() == [0, 0, 2, 2, 2]
    assert [row.tolist() for row in map(lists.take(np.array([2, 0, 2])).__getitem__, range(3))] == [
        rows[2],
        rows[0],
        rows[2],
    ]
    sets = Ragged.of_pairs(lists.rows, lists.ids, 4)
    assert [sets[at].tolist() for at in range(4)] == [[1, 3], [], [2, 5], []]
    assert lists.followed_by(Ragged.of([[9]]))[3].tolist() == [9]
    left = difference(sets, Ragged.of([[1, 2], [3], [], [7]]))
    assert [left[at].tolist() for at in range(4)] == [[3], [], [2, 5], []]
    assert difference(sets, Ragged.of([[]] * 4)).ids.tolist() == sets.ids.tolist()

"""Words, timestamps and ragged lists against plain Python."""

import numpy as np
import pytest

from negwise.datasets import Ragged, Texts
from negwise.datasets.ragged import difference
from negwise.datasets.task_data import concatenated, number_categories
from negwise.datasets.timestamps import parse_mind_timestamp, parse_timestamp
from negwise.words import split_words

TEXTS = ["The cat; the dog's 2 toys.", "", "snake_case and naïve café", "the the THE"]


def test_words():
    assert split_words(TEXTS[0]) == ["the", "cat", "the", "dog's", "2", "toys"]
    assert split_words(TEXTS[2]) == ["snake", "case", "and", "naïve", "café"]
    assert split_words("...") == []


def test_categories_by_count():
    numbers, names = number_categories(["b", "a", "", "a"])
    assert names == ("", "a", "b") and numbers.tolist() == [2, 1, 0, 1]


def test_texts_stay_as_they_were_written():
    first = Texts(["One two", "THREE!"], Ragged.of([[0, 1], [2]]), ["one", "two", "three", "four"])
    both = concatenated(first, Texts(["Four"], Ragged.of([[3]]), first.word_list))
    chosen = both.take(np.array([2, 0]))
    assert [chosen[at] for at in range(2)] == ["Four", "One two"] and len(chosen) == 2
    assert [chosen.words[at].tolist() for at in range(2)] == [[3], [0, 1]]


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

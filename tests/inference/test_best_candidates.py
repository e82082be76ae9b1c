"""The best n of all candidates, against a sort of every score."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.inference import top_n
from negwise.inference.best_candidates import BLOCK_SCORES, FOLD, TopN, merge


def brute_force(scores, n, exclude=None, at_most=None):
    """Ids and scores by a full sort: falling scores, equal ones by id."""
    rows = []
    for q, row in enumerate(np.asarray(scores)):
        allowed = [
            (-score, i)
            for i, score in enumerate(row.tolist())
            if not (exclude is not None and i in exclude[q]) and not (at_most is not None and score > at_most[q])
        ]
        best = sorted(allowed)[:n]
        rows.append([(i, -s) for s, i in best] + [(-1, -np.inf)] * (n - len(best)))
    width = min(n, len(scores[0]))
    rows = [row[:width] for row in rows]
    return np.array([[i for i, _ in row] for row in rows]), np.array([[s for _, s in row] for row in rows])


@pytest.mark.parametrize("items", [1, 7, FOLD, 20 * FOLD, 20 * FOLD + 1, 37 * FOLD - 1, 3000])
@pytest.mark.parametrize("n", [1, 3, 8])
def test_it_is_a_full_sort(items, n):
    rng = np.random.default_rng(items * 10 + n)
    queries, table = (torch.from_numpy(rng.normal(size=(k, 5)).astype(np.float32)) for k in (9, items))
    exclude = [rng.integers(0, items, rng.integers(0, 6)).tolist() for _ in range(9)]
    ids, scores = top_n(queries, table, n, exclude=Ragged.of(exclude))
    expected_ids, expected_scores = brute_force(queries @ table.T, n, exclude)
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5)
    np.testing.assert_array_equal(ids, expected_ids)


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=300, max_size=300), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(-2, 3),
)
@settings(max_examples=25, deadline=None)
def test_ties_keep_the_scores_and_the_limit_holds(values, n, limit):
    """Small whole numbers tie often: which of equal ones is taken is open, their scores are not."""
    table = torch.tensor(values, dtype=torch.float32).T.contiguous()  # scores of unit queries are these values
    queries = torch.eye(len(values))
    ids, scores = top_n(queries, table, n, at_most=torch.full((len(values),), float(limit)))
    expected = brute_force(np.array(values), n, at_most=[limit] * len(values))[1]
    np.testing.assert_array_equal(scores, expected)
    for row, (found, best) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True)):
        real = [one for one in found if one != -1]
        assert len(set(real)) == len(real)
        assert [values[row][one] for one in real] == best[: len(real)]


def test_several_blocks_are_as_one(monkeypatch):
    rng = np.random.default_rng(3)
    queries, table = (torch.from_numpy(rng.normal(size=(k, 4)).astype(np.float32)) for k in (50, 1500))
    whole = top_n(queries, table, 5)
    assert BLOCK_SCORES["cpu"] > 50 * 1500
    monkeypatch.setitem(BLOCK_SCORES, "cpu", 7 * 1500)
    parts = top_n(queries, table, 5)
    np.testing.assert_array_equal(whole[0], parts[0])
    halves = [top_n(queries, half, 5) for half in (table[:700], table[700:])]
    np.testing.assert_array_equal(merge(halves[0], (halves[1][0] + 700, halves[1][1]), 5)[0], whole[0])


def test_the_answer_reads_as_lists():
    found = TopN(["a", "b"], np.array([[4, 2], [3, -1]]), np.array([[2.0, 1.0], [5.0, -np.inf]], np.float32),
                 lambda numbers: [f"item {one}" for one in numbers], ("c",))  # fmt: skip
    assert list(found) == [[("item 4", 2.0), ("item 2", 1.0)], [("item 3", 5.0)]]
    assert repr(found) == "TopN(2 queries, n=2, 1 left out)"
    assert found.to_dict()["found"][1] == {"query": "b", "items": [{"item": "item 3", "score": 5.0}]}
    with pytest.raises(InputError, match="n: got 0"):
        top_n(torch.zeros(1, 2), torch.zeros(3, 2), 0)

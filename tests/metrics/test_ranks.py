"""Ranks of positives: both ways to find them against plain counting, and every refusal."""

from __future__ import annotations

import metric_loops as loops
import numpy as np
import pytest
import torch

from negwise.errors import InputError
from negwise.metrics import rank
from negwise.metrics import ranks as module


def counted(scores, labels, offsets):
    """Above and tied of every positive, one at a time."""
    above, tied = [], []
    for s, y in loops.split(scores, labels, offsets):
        for own in s[y]:
            above.append(sum(other > own for other in s))
            tied.append(sum(other == own for other in s))
    return above, tied


@pytest.mark.parametrize("way", ["compare", "sort"])
@pytest.mark.parametrize("levels", [None, 3, 1], ids=["no ties", "ties", "all tied"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_standing_is_that_of_plain_counting(monkeypatch, way, levels, dtype, chunk):
    monkeypatch.setattr(module, "SORT_BEYOND", 0 if way == "sort" else 10**9)
    monkeypatch.setattr(module, "CHUNK_PAIRS", chunk)
    scores, labels, offsets = loops.ragged(seed=chunk, levels=levels, dtype=dtype)
    ranks = rank(scores, labels, offsets)
    above, tied = counted(scores, labels, offsets)
    assert ranks.above.tolist() == above
    assert ranks.tied.tolist() == tied
    assert ranks.sizes.tolist() == np.diff(offsets).tolist()
    assert ranks.positives.tolist() == [int(y.sum()) for _, y in loops.split(scores, labels, offsets)]
    assert ranks.query.tolist() == np.repeat(np.arange(len(ranks.sizes)), ranks.positives).tolist()


def test_many_positives_are_sorted_and_few_compared(monkeypatch):
    taken = []
    for name in ("_by_comparing", "_by_sorting"):
        way = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, way=way, name=name: taken.append(name) or way(*a))
    scores, size = np.arange(1000.0), [0, 1000]
    for positives in (module.SORT_BEYOND, module.SORT_BEYOND + 1):
        ranks = rank(scores, np.arange(1000) < positives, size)
        assert ranks.above.tolist() == list(range(999, 999 - positives, -1))
    assert taken == ["_by_comparing", "_by_sorting"]


def test_infinite_scores_have_a_rank():
    ranks = rank([-np.inf, np.inf, 0.0, np.inf, -np.inf], [1, 1, 0, 0, 0], [0, 5])
    assert ranks.above.tolist() == [3, 0]
    assert ranks.tied.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_are_taken_as_they_are(dtype):
    scores, labels, offsets = loops.ragged(levels=4)
    from_tensors = rank(
        torch.tensor(scores, dtype=dtype, requires_grad=True), torch.tensor(labels), torch.tensor(offsets)
    )
    from_arrays = rank(scores, labels, offsets)
    assert from_tensors.above.tolist() == from_arrays.above.tolist()
    assert from_tensors.tied.tolist() == from_arrays.tied.tolist()


def test_nothing_to_rank():
    ranks = rank(np.empty(0), np.empty(0, dtype=bool), [0])
    assert len(ranks.above) == len(ranks.sizes) == 0


@pytest.mark.parametrize(
    ("scores", "labels", "offsets", "message"),
    [
        ([1, 2.0, np.nan, 3], [1, 0, 1, 0], [0, 2, 4], "candidate 0 of query 1 is NaN"),
        ([1, 2.0, np.nan], [1, 0, 1], [0, 2, 2, 3], "candidate 0 of query 2 is NaN"),
        ([[1.0, 2.0]], [1, 0], [0, 2], r"scores must be real numbers.*shape \(1, 2\)"),
        (["a", "b"], [1, 0], [0, 2], "scores must be real numbers"),
        ([1.0, 2.0], [1], [0, 2], r"each of the 2 scores.*shape \(1,\)"),
        ([1.0, 2.0], [2, 0], [0, 2], "labels must be 0 or 1; got"),
        ([1.0, 2.0], [0.5, 0], [0, 2], "labels must be 0 or 1; got"),
        ([1.0, 2.0], [1, 0], [0, 1], "0 to the number of scores, 2; got 0 to 1"),
        ([1.0, 2.0], [1, 0], [1, 2], "got 1 to 2"),
        ([1.0, 2.0], [1, 0], [0, 2, 1, 2], "not in order"),
        ([1.0, 2.0], [1, 0], [], "whole numbers"),
        ([1.0, 2.0], [1, 0], [0.0, 2.0], "whole numbers"),
    ],
)
def test_bad_input_is_refused(scores, labels, offsets, message):
    with pytest.raises(InputError, match=message):
        rank(scores, labels, offsets)

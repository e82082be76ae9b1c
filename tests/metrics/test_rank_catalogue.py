"""Full ranking: the same ranks as the flat form on the candidates that are left, on arrays and tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from negwise.errors import InputError
from negwise.metrics import evaluate, rank, rank_catalogue
from negwise.metrics import ranks as module

ROWS, ITEMS = 37, 23
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def example(seed=0, levels=6):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (ROWS, ITEMS)).astype(np.float64)
    positives = rng.integers(0, ITEMS, ROWS)
    excluded = [rng.integers(0, ITEMS, rng.integers(0, 9)) for _ in range(ROWS)]  # with repeats, with the positive
    excluded[0] = np.arange(ITEMS)  # nothing but the positive is left
    return scores, positives, excluded


def csr(lists):
    return np.concatenate(lists), np.cumsum([0] + [len(ids) for ids in lists])


def flat(scores, positives, excluded):
    """The remaining candidates of each row, one row at a time, through the flat form."""
    kept = [
        [item for item in range(ITEMS) if item == own or item not in set(out.tolist())]
        for own, out in zip(positives, excluded, strict=True)
    ]
    values = np.concatenate([scores[row, items] for row, items in enumerate(kept)])
    labels = np.concatenate([np.array(items) == positives[row] for row, items in enumerate(kept)])
    return rank(values, labels, np.cumsum([0] + [len(items) for items in kept]))


def same(a, b):
    for name in ("above", "tied", "positives", "sizes"):
        assert getattr(a, name).tolist() == getattr(b, name).tolist(), name


@pytest.mark.parametrize("chunk", [1, 3 * ITEMS, 1 << 22])
@pytest.mark.parametrize("levels", [6, 1000])
def test_is_the_flat_form_on_what_is_left(monkeypatch, levels, chunk):
    monkeypatch.setattr(module, "CHUNK_SCORES", chunk)
    scores, positives, excluded = example(levels=levels)
    same(rank_catalogue(scores, positives, *csr(excluded)), flat(scores, positives, excluded))


def test_without_exclusions_all_items_compete():
    scores, positives, _ = example(1)
    same(rank_catalogue(scores, positives), flat(scores, positives, [np.empty(0, int)] * ROWS))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NEEDS_CUDA])])
def test_tensors_rank_like_arrays(dtype, device):
    scores, positives, excluded = example(2)
    ids, offsets = csr(excluded)
    tensors = (torch.tensor(positives, device=device), torch.tensor(ids), torch.tensor(offsets))
    given = torch.tensor(scores, dtype=dtype, device=device, requires_grad=True)
    same(rank_catalogue(given, *tensors), rank_catalogue(scores, positives, ids, offsets))


def test_a_row_with_only_its_positive_is_counted_as_without_negatives():
    summary = evaluate(rank_catalogue(*example()[:2], *csr(example()[2])))
    assert (summary.queries, summary.no_negative) == (ROWS - 1, 1)


def test_arguments_are_left_as_they_were():
    scores, positives, excluded = example(3)
    before = scores.copy()
    rank_catalogue(scores, positives, *csr(excluded))
    np.testing.assert_array_equal(scores, before)


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_nan_names_its_row(as_tensor):
    scores, positives, _ = example()
    scores[17, 4] = np.nan
    with pytest.raises(InputError, match="row 17"):
        rank_catalogue(torch.tensor(scores) if as_tensor else scores, positives)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": np.zeros(5)}, r"\(B, M\)"),
        ({"scores": [[1.0, 2.0]]}, r"\(B, M\)"),
        ({"positives": np.full(ROWS, ITEMS)}, r"positives must be item ids from 0 to 22"),
        ({"positives": np.zeros(3, int)}, "one item for each of the 37 rows"),
        ({"positives": np.zeros(ROWS)}, "positives must be item ids"),
        ({"excluded": np.array([-1])}, "excluded must be item ids"),
        ({"excluded": np.array([1])}, "go together"),
        ({"excluded": np.array([1]), "excluded_offsets": [0, 1]}, "38 non-decreasing whole numbers"),
        ({"excluded": np.array([1]), "excluded_offsets": np.zeros(ROWS + 1, int)}, "numbers from 0 to 1"),
    ],
)
def test_bad_input_is_refused(change, message):
    scores, positives, _ = example()
    arguments = {"scores": scores, "positives": positives} | change
    if "-1" in str(change.get("excluded")):
        arguments["excluded_offsets"] = np.zeros(ROWS + 1, int)
    with pytest.raises(InputError, match=message):
        rank_catalogue(**arguments)

"""Gaps: how many, where, and on what alone they hang. The referee draws row by row from the same random words."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from negwise.draws import Key, Stream, block
from negwise.errors import InputError
from negwise.models import BERT4Rec, cloze, mask_sequence
from negwise.models.cloze import LAST_ITEM_BLOCK, MASK_SEED
from negwise.protocols import Query

N_ITEMS = 99


def sequences(rows=7, places=12, seed=0):
    """Rows of every length from 0, padding on alternating sides."""
    rng = np.random.default_rng(seed)
    items, mask = np.zeros((rows, places), np.int64), np.zeros((rows, places), bool)
    for row in range(rows):
        length = min(row * 2, places)
        at = slice(0, length) if row % 2 else slice(places - length, places)
        items[row, at], mask[row, at] = rng.integers(1, N_ITEMS, length), True
    return torch.tensor(items), torch.tensor(mask)


def referee(mask, rate, key, row, last_rate):
    """The hidden places of one row, in words: its items sorted by their random word, the first few."""
    places = mask.nonzero()[:, 0].tolist()
    if not places:
        return []
    key = Key(key.seed ^ MASK_SEED, key.step)
    number = np.array([row])
    coin = int(block(key, number, np.array([LAST_ITEM_BLOCK]), Stream.ITEM)[0][0])
    if coin < last_rate * 2**32:
        return [places[-1]]
    words = [int(block(key, number, np.array([i // 4]), Stream.ITEM)[i % 4][0]) for i in range(len(places))]
    count = max(1, math.floor(rate * len(places) + 0.5))
    return sorted(places[i] for i in sorted(range(len(places)), key=lambda i: words[i])[:count])


@pytest.fixture(params=["numba", "torch"])
def way(request, monkeypatch):
    """Each way to find the gaps on a CPU."""
    if request.param == "torch":
        monkeypatch.setattr(cloze, "find_spec", lambda _: None)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("rate", "last_rate"), [(0.2, 0.0), (0.0, 0.0), (1.0, 0.0), (0.45, 0.5), (0.2, 1.0)])
def test_gaps_are_those_of_the_referee(rate, last_rate):
    items, mask = sequences()
    for step in range(5):
        key = Key(seed=2**63 + 5, step=step, row=40)
        masked = mask_sequence(items, mask, rate, key, last_rate=last_rate)
        expected = [
            (row, place) for row in range(len(items)) for place in referee(mask[row], rate, key, 40 + row, last_rate)
        ]
        assert [tuple(read) for read in masked.positions.tolist()] == expected
        assert masked.targets.tolist() == [int(items[read]) for read in expected]
        for row in range(len(items)):
            for place in range(items.shape[1]):
                there = 0 if (row, place) in expected else int(items[row, place])
                assert masked.items[row, place] == there


@pytest.mark.parametrize(("rows", "places"), [(1, 1), (5, 4), (3, 201), (40, 64), (4, 0)])
def test_both_ways_are_the_same_bits(rows, places):
    mask = torch.rand(rows, places, generator=torch.Generator().manual_seed(rows)) < 0.7
    mask[:1, :1] = True
    key = Key(2**63 + 5, 7, 2**33 + 3).on("cpu", rows)
    for rate in (0.0, 0.2, 0.5, 1.0):
        for last_below in (0, 2**30, 2**32):
            plain = cloze._choose_masked(mask, rate, key, last_below)
            assert torch.equal(cloze._choose_masked_compiled(mask, rate, key, last_below), plain)
    assert plain.any() or not places


@pytest.mark.usefixtures("way")
def test_a_row_hangs_on_itself_alone():
    items, mask = sequences()
    whole = mask_sequence(items, mask, 0.4, Key(3, 8), last_rate=0.3)
    for row in range(len(items)):
        length = int(mask[row].sum())
        alone = torch.cat([items[row][mask[row]], torch.zeros(3, dtype=torch.int64)])[None]
        there = torch.arange(length + 3)[None] < length
        part = mask_sequence(alone, there, 0.4, Key(3, 8, row), last_rate=0.3)
        assert part.items[0, :length].tolist() == whole.items[row][mask[row]].tolist()
    numbers = torch.tensor([5, 2])
    picked = mask_sequence(items[numbers], mask[numbers], 0.4, Key(3, 8, numbers), last_rate=0.3)
    assert torch.equal(picked.items, whole.items[numbers])


def test_every_set_is_equally_likely_and_steps_differ():
    items = torch.arange(1, 6).repeat(6000, 1)
    masked = mask_sequence(items, torch.ones_like(items, dtype=torch.bool), 0.4, Key(1, 2))
    sets = Counter(tuple(row) for row in masked.positions[:, 1].view(6000, 2).tolist())
    assert len(sets) == 10
    assert stats.chisquare(list(sets.values())).pvalue > 0.001
    other = mask_sequence(items, torch.ones_like(items, dtype=torch.bool), 0.4, Key(1, 3))
    same = (masked.items == other.items).all(1).float().mean().item()
    assert abs(same - 0.1) < 0.02


def test_share_of_rows_with_only_the_last_item_hidden():
    items = torch.arange(1, 11).repeat(8000, 1)
    there = torch.ones_like(items, dtype=torch.bool)
    masked = mask_sequence(items, there, 0.3, Key(0, 0), last_rate=1 / 11)
    gaps = (masked.items == 0).sum(1)
    share = (gaps == 1).float().mean().item()
    assert abs(share - 1 / 11) < 4 * math.sqrt(1 / 11 * 10 / 11 / 8000)
    assert set(gaps.tolist()) == {1, 3}
    assert (masked.items[gaps == 1, -1] == 0).all()


def test_negatives_of_the_same_key_have_other_words():
    """Gaps and negatives of a step must not hang together: their Philox keys differ."""
    rows = np.arange(64)
    for mine, theirs in zip(
        block(Key(7 ^ MASK_SEED, 1), rows, rows * 0, Stream.ITEM),
        block(Key(7, 1), rows, rows * 0, Stream.ITEM),
        strict=True,
    ):
        assert not (mine == theirs).any()


def test_what_cannot_be_is_refused():
    items, mask = sequences()
    with pytest.raises(InputError, match=r"rate=1\.5, expected a probability from 0 to 1"):
        mask_sequence(items, mask, 1.5, Key(0, 0))
    with pytest.raises(InputError, match="last_rate=-1, expected"):
        mask_sequence(items, mask, 0.2, Key(0, 0), last_rate=-1)
    with pytest.raises(InputError, match=r"items \(7, 12\) and mask \(7, 11\), expected the same"):
        mask_sequence(items, mask[:, 1:], 0.2, Key(0, 0))


def test_the_models_own_gaps():
    model = BERT4Rec(N_ITEMS, heads=1, head_dim=4, max_len=12, mask_rate=0.3, last_rate=0.2)
    items, mask = sequences()
    query, targets = model.mask_items(Query(items, mask, torch.arange(7)), Key(4, 5))
    expected = mask_sequence(items, mask, 0.3, Key(4, 5), last_rate=0.2)
    assert torch.equal(query.items, expected.items)
    assert torch.equal(query.positions, expected.positions)
    assert torch.equal(targets, expected.targets)
    assert len(query) == len(targets) == len(model.encode_queries(query, None))

"""Texts of a batch told apart by their token ids."""

import numpy as np
import pytest
import torch

from negwise.draws import Key, Stream, block
from negwise.integrations import token_ids
from negwise.integrations.token_ids import MIN_PLACES, SEED, any_equal, text_hashes


def features(rows, length, side="right"):
    """Token ids and their mask, padded with 7 to ``length``; padding is told by the mask alone."""
    ids, mask = torch.full((len(rows), length), 7), torch.zeros(len(rows), length, dtype=torch.long)
    for at, row in enumerate(rows):
        places = slice(0, len(row)) if side == "right" else slice(length - len(row), length)
        ids[at, places], mask[at, places] = torch.tensor(row, dtype=torch.long), 1
    return {"input_ids": ids, "attention_mask": mask}


def by_loop(row):
    """The sum of (token + 1) times a random word of 64 bits for its place, in whole numbers of Python."""
    total = 0
    for place, token in enumerate(row, start=1):
        high, low, *_ = block(Key(SEED, 0), np.array([place]), np.array([0]), Stream.ITEM)
        total += (token + 1) * (int(high[0]) << 32 | int(low[0]))
    total %= 2**64
    return total - 2**64 if total >= 2**63 else total


def test_a_hash_is_the_sum_over_a_text_whatever_its_padding():
    rows = [[5, 6, 0], [], [0], [0, 0], list(range(900)), [2**31 - 1] * 40]
    expected = [by_loop(row) for row in rows]
    for side in ("right", "left"):
        for length in (900, 1500):
            assert text_hashes(features(rows, length, side)).tolist() == expected
    assert text_hashes(features([[1, 2]], 2)).tolist() == [by_loop([1, 2])]
    assert MIN_PLACES < 900  # both sizes of the table of weights were seen


def test_texts_that_differ_have_other_hashes():
    words = [[a, b, c] for a in range(20) for b in range(20) for c in range(20)]
    rows = [*words, *[row[:2] for row in words[::20]], *[row[:1] for row in words[::400]], []]
    found = text_hashes(features(rows, 8)).tolist()
    assert len(set(found)) == len(rows)


def test_what_has_no_rows_of_token_ids_has_no_hashes():
    good = features([[1, 2]], 4)
    assert text_hashes({"input_ids": good["input_ids"]}) is None
    assert text_hashes({"pixel_values": torch.zeros(2, 3)}) is None
    assert text_hashes({"input_ids": good["input_ids"][0], "attention_mask": good["attention_mask"][0]}) is None
    assert text_hashes({"input_ids": good["input_ids"], "attention_mask": good["attention_mask"][:, :3]}) is None


@pytest.mark.parametrize("all_pairs", [0, token_ids.ALL_PAIRS])
def test_equal_positives_are_found_twice_or_among_others(monkeypatch, all_pairs):
    monkeypatch.setattr(token_ids, "ALL_PAIRS", all_pairs)
    one, two = torch.tensor([4, 9, 2]), torch.tensor([7, 7, 1])
    assert not any_equal(one, []) and not any_equal(one, [two])
    assert any_equal(two, []) and any_equal(one, [torch.tensor([0, 2, 8])])

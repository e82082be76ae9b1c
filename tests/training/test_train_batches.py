"""Every example once an epoch, every row in one rank, and the same numbers however the batch is split."""

import numpy as np
import pytest
import torch
from train_world import N_ITEMS, make_sampler, make_world

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Query
from negwise.training.batches import EpochOrder, draw_negatives, load_batch, rank_slice


@pytest.mark.parametrize(("n", "size"), [(10, 3), (12, 4), (5, 8), (1, 1)])
def test_an_epoch_has_every_example_once(n, size):
    order = EpochOrder(n, size, seed=7)
    assert order.steps_per_epoch == len(range(0, n, size))
    for epoch in range(3):
        steps = range(epoch * order.steps_per_epoch, (epoch + 1) * order.steps_per_epoch)
        seen = np.concatenate([order.batch(step) for step in steps])
        assert sorted(seen.tolist()) == list(range(n))
        # the order is numpy's own permutation of (seed, epoch): no other state is in it
        assert seen.tolist() == np.random.default_rng([7, epoch]).permutation(n).tolist()


def test_orders_differ_by_epoch_and_seed():
    def first(seed, step):
        return EpochOrder(100, 100, seed).batch(step).tolist()

    assert first(0, 0) != first(0, 1) != first(1, 1)
    assert first(0, 0) == first(0, 0)
    with pytest.raises(InputError, match="expected 1 or more"):
        EpochOrder(0, 3, 0)


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [1, 2, 5, 32])
def test_shares_are_runs_that_cover_the_batch(rows, world):
    parts = [rank_slice(rows, rank, world) for rank in range(world)]
    covered = [row for part in parts for row in range(rows)[part]]
    assert covered == list(range(rows))
    sizes = [part.stop - part.start for part in parts]
    assert max(sizes) - min(sizes) <= 1


def cut(query, key):
    """A cloze for the test: row b asks for its first b % 3 + 1 places."""
    number = np.asarray(key.rows(len(query.items)))
    reads = torch.tensor([(row, place) for row in range(len(number)) for place in range(int(number[row]) % 3 + 1)])
    return Query(query.items, query.mask, query.users, reads), query.items[reads[:, 0], reads[:, 1]]


@pytest.mark.parametrize("mask_items", [None, cut])
@pytest.mark.parametrize("world", [2, 3, 6])
def test_ranks_draw_what_one_process_draws(mask_items, world):
    data, key = make_world(), Key(5, 9)
    rows, sampler = EpochOrder(len(data.train), 5, 1).batch(3), make_sampler(data)
    whole = load_batch(data.train, rows, slice(0, 5), key, mask_items)
    wanted = draw_negatives(sampler, whole, 3.4, key).ids
    parts = [load_batch(data.train, rows, rank_slice(5, rank, world), key, mask_items) for rank in range(world)]
    drawn = [draw_negatives(sampler, part, 3.4, key).ids[: part.counted] for part in parts]
    assert torch.equal(torch.cat(drawn), wanted)
    assert [part.counted for part in parts].count(0) == max(0, world - 5)
    for name in ("positives", "groups", "numbers"):
        together = torch.cat([getattr(part, name)[: part.counted] for part in parts])
        assert torch.equal(together, getattr(whole, name))
    assert len(set(whole.numbers.tolist())) == len(whole.numbers)
    assert int(wanted.max()) < N_ITEMS

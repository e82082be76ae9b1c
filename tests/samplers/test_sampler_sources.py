"""What is special about each source: subsets, the queue's order, pools, hardness, mixtures."""

from __future__ import annotations

import json
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from scipy import stats

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Query
from negwise.samplers import (
    BatchFirst,
    Exclusions,
    Given,
    GivenFirst,
    Hardest,
    Impression,
    InBatch,
    Lists,
    Mixture,
    Pool,
    Popularity,
    Queue,
    Uniform,
)
from negwise.samplers.draw_request import DrawRequest
from negwise.samplers.without_replacement import draw_ranks

GIVEN = Lists.of([[3], [4]])


@pytest.mark.parametrize("impl", ["torch", "auto"])
@pytest.mark.parametrize(("n", "k"), [(4, 2), (4, 4), (5, 3)])
def test_every_ordered_subset_is_equally_likely(impl, n, k):
    """Chi-square over all n! / (n - k)! outcomes."""
    rows = 30_000
    request = DrawRequest.of(torch.zeros(rows, dtype=torch.int64), k, Key(4, 2))
    drawn = draw_ranks(torch.full((rows,), n), request.wanted, request, impl)
    seen = Counter(map(tuple, drawn.tolist()))
    every = list(permutations(range(n), k))
    assert set(seen) <= set(every)
    assert stats.chisquare([seen[one] for one in every]).pvalue > 1e-3


def test_numba_shuffles_as_torch_does():
    """Ragged sizes, empty ones, and slots past the end, with far row numbers."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    sizes = torch.from_numpy(rng.integers(0, 40, 200))
    request = DrawRequest.of(torch.zeros(200, dtype=torch.int64), 30, Key(2**63, 7, 2**43))
    filled = torch.where(sizes > 0, torch.from_numpy(rng.integers(0, 31, 200)), 0)
    assert torch.equal(draw_ranks(sizes, filled, request, "numba"), draw_ranks(sizes, filled, request, "torch"))


def test_plain_torch_shuffles_in_chunks(monkeypatch):
    request = DrawRequest.of(torch.zeros(50, dtype=torch.int64), 6, Key(0, 0))
    sizes = torch.full((50,), 9)
    whole = draw_ranks(sizes, request.wanted, request, "torch")
    monkeypatch.setattr("negwise.samplers.without_replacement.CHUNK_SIZE", 30)
    assert torch.equal(whole, draw_ranks(sizes, request.wanted, request, "torch"))


def test_slots_past_the_end_repeat_uniformly():
    rows, n = 20_000, 3
    request = DrawRequest.of(torch.zeros(rows, dtype=torch.int64), 5, Key(1, 1))
    for impl in ("torch", "auto"):
        drawn = draw_ranks(torch.full((rows,), n), request.wanted, request, impl)
        assert {len(set(row[:3])) for row in drawn.tolist()} == {3}
        for slot in (3, 4):
            assert stats.chisquare(np.bincount(drawn[:, slot], minlength=n)).pvalue > 1e-3


def test_in_batch_uses_every_other_row_once_and_masks_the_same_id():
    positives = torch.tensor([7, 8, 7, 9])
    drawn = InBatch()(positives, 3, Key(0, 0))
    assert [sorted(i[m].tolist()) for i, m in zip(drawn.index, drawn.mask, strict=True)] == [
        [1, 3],
        [0, 2, 3],
        [1, 3],
        [0, 1, 2],
    ]
    assert torch.equal(positives[drawn.index] * drawn.mask, drawn.ids)
    assert drawn.removed.tolist() == [0.5, 0.25, 0.5, 0.25]
    assert drawn.log_q[1].exp()[drawn.ids[1] == 7].tolist() == pytest.approx([2 / 3, 2 / 3])


def test_in_batch_of_two_ranks_is_in_batch_of_one():
    """Each rank passes the gathered ids and its own first row."""
    positives = torch.arange(20) % 13
    whole = InBatch()(positives, 5, Key(3, 1))
    halves = [InBatch()(positives[r : r + 10], 5, Key(3, 1, r), batch=positives) for r in (0, 10)]
    assert torch.equal(whole.ids, torch.cat([one.ids for one in halves]))
    assert torch.equal(whole.index, torch.cat([one.index for one in halves]))


def test_batch_first_takes_other_positives_then_the_catalogue():
    """Up to the other positives, nothing else is encoded; beyond them, as many more as K asks for, no id twice."""
    positives = torch.tensor([7, 8, 7, 9])
    known = Exclusions.of(Lists.of([[8], [], [], []]), 30)
    sampler, owner = BatchFirst(30, known), torch.arange(4)
    few = sampler(positives, 1, Key(0, 0), owner=owner)
    assert few.pool.tolist() == [7, 8, 9]
    assert few.mask.all()
    many = sampler(positives, 12, Key(0, 0), owner=owner)
    own = [{9}, {7, 9}, {8, 9}, {7, 8}]
    for row, ids in enumerate(many.ids.tolist()):
        assert len(set(ids)) == 12
        assert set(ids[: len(own[row])]) == own[row]
        assert not {int(positives[row]), *([8] if row == 0 else [])} & set(ids)
    assert len(many.pool) == 3 + 12 - 1 + 1  # three of the batch; row 0 has one other and one exclusion
    every = sampler(positives, 40, Key(0, 0), owner=owner)
    assert every.mask.sum(1).tolist() == [28, 29, 29, 29]


def test_batch_first_draws_every_id_outside_the_batch_alike():
    positives = torch.tensor([0, 1, 2])
    drawn = [BatchFirst(23)(positives, 7, Key(5, step)).ids for step in range(1000)]
    outside = torch.stack(drawn)[:, 0, 2:].flatten().numpy()  # five of twenty a step
    found = np.bincount(outside, minlength=23)[3:]
    # Draws without replacement scatter less than the multinomial does, by (1 - 5 / 20) x 20 / 19.
    assert stats.chi2.sf(((found - 250) ** 2 / 250).sum() / (0.75 * 20 / 19), 19) > 1e-3


@pytest.mark.parametrize("k", [3, 25.5])
def test_batch_first_of_two_ranks_is_that_of_one(k):
    """A rank whose rows lack fewer negatives takes the same ones first."""
    positives = torch.arange(20) % 13
    known = Exclusions.of(Lists.of([[row, 20, 40] if row < 10 else [] for row in range(20)]), 60)
    sampler, owner = BatchFirst(60, known), torch.arange(20)
    whole = sampler(positives, k, Key(3, 1), owner=owner)
    halves = [
        sampler(positives[r : r + 10], k, Key(3, 1, r), owner=owner[r : r + 10], batch=positives) for r in (0, 10)
    ]
    assert torch.equal(whole.ids, torch.cat([one.ids for one in halves]))
    assert torch.equal(whole.mask, torch.cat([one.mask for one in halves]))


def test_a_queue_is_first_in_first_out():
    """Against a Python list that keeps its end, over pushes of every size, longer than the queue included."""
    queue, kept = Queue(5, width=2), []
    for start, size in [(0, 3), (10, 1), (20, 4), (30, 12), (50, 0), (60, 2)]:
        ids = torch.arange(start, start + size)
        queue.push(ids, torch.stack((ids, ids), 1).float())
        kept = (kept + ids.tolist())[-5:]
        assert sorted(queue.ids.tolist()) == sorted(kept)
        assert torch.equal(queue.vectors[:, 0].long(), queue.ids)
    drawn = queue(torch.tensor([60, 99]), 5, Key(0, 0))
    assert drawn.mask.sum(1).tolist() == [4, 5]
    assert 60 not in drawn.ids[0].tolist()
    assert torch.equal(queue.vectors[drawn.index[1]][:, 0].long(), drawn.ids[1])
    assert queue.allowed(torch.tensor([60])).sum() == 4


def test_a_queue_holds_no_gradient_and_survives_a_checkpoint():
    queue, again = Queue(4, width=3), Queue(4, width=3)
    vectors = torch.randn(6, 3, requires_grad=True)
    queue.push(torch.arange(6), vectors)
    assert not queue.vectors.requires_grad
    again.load_state_dict(queue.state_dict())
    queue.push(torch.tensor([77]), torch.zeros(1, 3))
    again.push(torch.tensor([77]), torch.zeros(1, 3))
    assert torch.equal(queue.ids, again.ids)
    assert torch.equal(queue.vectors, again.vectors)
    assert json.dumps({n: v if isinstance(v, int) else v.tolist() for n, v in queue.state_dict().items()})
    with pytest.raises(InputError, match="expected"):
        Queue(5, width=3).load_state_dict(queue.state_dict())


def test_a_queue_of_131072_gives_each_row_its_own():
    queue = Queue(131_072)
    queue.push(torch.arange(200_000))
    drawn = queue(torch.arange(150_000, 150_064), 1000, Key(1, 2))
    assert drawn.mask.all()
    assert int(drawn.ids.min()) >= 200_000 - 131_072
    assert [len(set(row)) for row in drawn.ids.tolist()] == [1000] * 64


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Queue(0), "capacity=0"),
        (lambda: Queue(4).vectors, "width=D"),
        (lambda: Queue(4).push(torch.tensor([1]), torch.ones(1, 2)), "vectors of shape"),
        (lambda: Queue(4, width=2).push(torch.tensor([1])), "vectors of shape None"),
        (lambda: Queue(4).push(torch.tensor([1.0])), "expected integers"),
        (lambda: Queue(4).push(torch.tensor([[1]])), "expected \\(N,\\)"),
        (lambda: Pool(Uniform(4), 0), "size=0"),
        (lambda: Hardest(Uniform(4), 0, lambda i, _: i.float()), "candidates=0"),
        (lambda: Hardest(Uniform(4), 3, lambda i, _: i.float()[:, :1])(torch.tensor([1]), 1, Key(0, 0)), "score gave"),
        (lambda: Hardest(Uniform(4), 3, lambda i, _: i * float("nan"))(torch.tensor([1]), 1, Key(0, 0)), "NaN"),
        (lambda: Mixture([Uniform(4)], [0.5, 0.5]), "2 weights, 1 parts"),
        (lambda: Mixture([Uniform(4)], [0.0]), "positive numbers"),
        (lambda: Impression(Lists.of([[1]]), Exclusions.of(Lists.of([[1], [2]]), 5)), "2 owners"),
        (lambda: Given(Lists.of([[1]]), Exclusions.of(Lists.of([[1], [2]]), 5)), "2 owners"),
    ],
)
def test_bad_requests_are_named(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_impressions_leave_clicks_out_and_count_an_id_shown_twice_once():
    shown, clicked = Lists.of([[4, 5, 6, 5, 7], [8]]), Exclusions.of(Lists.of([[7], []]), 10)
    drawn = Impression(shown, clicked)(torch.tensor([4, 9]), 4, Key(0, 0), owner=torch.tensor([0, 1]))
    assert [sorted(i[m].tolist()) for i, m in zip(drawn.ids, drawn.mask, strict=True)] == [[5, 6], [8]]
    assert drawn.removed.tolist() == [0.5, 0]
    assert drawn.log_q[:, 0].exp().tolist() == pytest.approx([0.5, 1])


def test_given_keeps_the_order_it_was_given():
    lists = Lists.of([[9, 3, 5, 3], [2]])
    drawn = Given(lists)(torch.tensor([5, 7]), 3, Key(0, 0), owner=torch.tensor([0, 1]))
    assert drawn.ids.tolist() == [[9, 3, 3], [2, 0, 0]]
    assert drawn.mask.tolist() == [[True] * 3, [True, False, False]]
    assert drawn.log_q is None


def test_given_first_takes_its_own_list_and_then_the_first_slots_of_its_fill():
    lists, fill = Lists.of([[5, 3], [], [7, 8, 9, 4, 6]]), Uniform(30)
    positives, owner, key = torch.tensor([3, 1, 2]), torch.arange(3), Key(0, 4)
    found = GivenFirst(lists, fill)(positives, 4, key, owner=owner)
    given = [[5], [], [7, 8, 9, 4]]  # 3 is the first row's positive
    drawn = fill(positives, 4, key).ids.tolist()
    assert found.ids.tolist() == [(own + more)[:4] for own, more in zip(given, drawn, strict=True)]
    assert found.given.tolist() == [1, 0, 4]
    assert found.log_q is None


def test_given_first_has_its_own_list_and_all_that_its_fill_has():
    queue = Queue(3)
    queue.push(torch.tensor([11, 12, 13]))
    found = GivenFirst(Lists.of([[5, 6]]), queue)(torch.tensor([1]), 9, Key(0, 0), owner=torch.tensor([0]))
    assert found.mask.sum() == 5
    assert found.ids[0, :2].tolist() == [5, 6]
    assert set(found.ids[0, 2:5].tolist()) == {11, 12, 13}


def test_a_pool_is_the_same_for_every_row_and_rank_and_is_all_there_is_to_encode():
    pool = Pool(Popularity(torch.arange(500) + 1), size=64)
    whole = pool(torch.arange(40), 20, Key(6, 7))
    assert len(whole.pool) <= 64
    assert len(set(whole.pool.tolist())) == len(whole.pool)
    assert set(whole.ids[whole.mask].tolist()) <= set(whole.pool.tolist())
    late = pool(torch.arange(10, 20), 20, Key(6, 7, 10))
    assert torch.equal(late.pool, whole.pool)
    assert torch.equal(late.ids, whole.ids[10:20])
    assert not torch.equal(pool(torch.arange(40), 20, Key(6, 8)).pool, whole.pool)


def test_hardest_are_the_top_of_the_same_larger_draw():
    source = Uniform(1000)
    score = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    positives = torch.arange(30)
    drawn = Hardest(source, 60, lambda ids, _: score[ids])(positives, 5, Key(2, 2))
    larger = source(positives, 60, Key(2, 2)).ids
    for row, all_ids in zip(drawn.ids.tolist(), larger.tolist(), strict=True):
        assert row == sorted(set(all_ids), key=lambda i: -score[i])[:5]
    assert drawn.log_q is None


def test_hardest_does_not_lose_a_score_of_minus_infinity():
    """Ids of a list shorter than the draw, all scored -inf, still come before masked slots."""
    source = Impression(Lists.of([[3, 4]]))
    drawn = Hardest(source, 6, lambda ids, _: ids * 0.0 - torch.inf)(
        torch.tensor([9]), 3, Key(0, 0), owner=torch.tensor([0])
    )
    assert sorted(drawn.ids[0][drawn.mask[0]].tolist()) == [3, 4]


def test_mixture_weights_move_to_the_parts_that_can_fill_a_slot():
    """One list of one id beside a uniform of 4: slot 0 has both, slot 1 only the uniform."""
    rows = 20_000
    zero = torch.zeros(rows, dtype=torch.int64)
    mixture = Mixture([Uniform(4), Impression(Lists.of([[2]]))], [1.0, 3.0])
    drawn = mixture(zero, 2, Key(1, 1), owner=zero)
    for slot, probabilities in enumerate([{1: 1 / 12, 2: 10 / 12, 3: 1 / 12}, {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}]):
        observed = np.bincount(drawn.ids[:, slot], minlength=4)
        assert observed[0] == 0
        assert stats.chisquare(observed[1:], [probabilities[i] * rows for i in (1, 2, 3)]).pvalue > 1e-3
        for i, q in probabilities.items():
            assert drawn.log_q[:, slot][drawn.ids[:, slot] == i].exp().unique().tolist() == pytest.approx([q], rel=1e-5)


def test_a_mixture_with_a_part_without_log_q_has_no_log_q():
    part = Given(Lists.of([[1, 2, 3]]))
    drawn = Mixture([Uniform(4), part], [1, 1])(torch.tensor([0]), 2, Key(0, 0), owner=torch.tensor([0]))
    assert drawn.log_q is None


def test_mixture_parts_come_in_the_stated_shares():
    rows = 50_000
    drawn = Mixture([Uniform(10), Popularity(torch.tensor([0] * 10 + [1] * 10))], [0.3, 0.7])
    ids = drawn(torch.zeros(rows, dtype=torch.int64), 1, Key(9, 9)).ids
    assert stats.binomtest(int((ids >= 10).sum()), rows, 0.7).pvalue > 1e-3


def test_a_mixture_of_mixtures_is_one_mixture():
    parts = [Uniform(3), Uniform(50), Uniform(1000)]
    nested = Mixture([Mixture(parts[:2], [0.5, 0.5]), parts[2]], [0.5, 0.5])
    flat = Mixture(parts, [0.25, 0.25, 0.5])
    positives = torch.full((4000,), 2)
    here, there = (mixture(positives, 1, Key(0, 0)) for mixture in (nested, flat))
    assert torch.equal(here.ids, there.ids)
    torch.testing.assert_close(here.log_q, there.log_q)
    assert Uniform(5).log_prob(torch.tensor([[9, 4]]), torch.tensor([0])).exp().tolist() == [[0.0, 0.25]]
    # Ids below 3 come from all three parts, those from 50 on from the last one alone.
    assert (here.ids >= 50).double().mean().item() == pytest.approx(0.5 * 950 / 999, abs=0.03)
    assert ((here.ids >= 3) & (here.ids < 50)).double().mean().item() == pytest.approx(
        0.25 * 47 / 49 + 0.5 * 47 / 999, abs=0.03
    )


def test_ids_that_the_exclusions_do_not_know_are_refused():
    known = Exclusions.of(Lists.of([[0], [6]]), 7)
    with pytest.raises(InputError, match=r"expected 0\.\.6"):
        InBatch(known)(torch.tensor([1, 70]), 1, Key(0, 0), owner=torch.tensor([0, 0]))
    for make in (Given, Impression):
        with pytest.raises(InputError, match=r"expected 0\.\.6"):
            make(Lists.of([[1], [13]]), known)
    queue = Queue(4, exclude=known)
    queue.push(torch.tensor([70]))
    with pytest.raises(InputError, match=r"expected 0\.\.6"):
        queue(torch.tensor([1]), 1, Key(0, 0), owner=torch.tensor([0]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Lists.of([[1.5, 2.7]]), "expected integers"),
        (lambda: Lists.of_pairs(torch.tensor([0.0]), torch.tensor([1]), 1), "expected integers"),
        (lambda: Uniform(5)([1, 2], 1, Key(0, 0)), "expected a torch tensor"),
        (lambda: Uniform(5)(torch.tensor([1]), 1, 7), r"expected Key\(seed, step\)"),
        (lambda: Uniform(5).log_prob(torch.tensor([[1.0]]), torch.tensor([0])), "expected integers"),
        (lambda: Popularity(torch.tensor([-3, 1]), alpha=2.0), "negative or non-finite"),
        (lambda: Popularity(torch.tensor([float("nan"), 1.0]), alpha=0.0), "negative or non-finite"),
        (lambda: Queue(4).push(torch.tensor([True])), "expected integers"),
    ],
)
def test_wrong_types_and_ranges_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Pool(Uniform(9), 2.5), "Pool: size=2.5, expected an integer, 1 or more"),
        (lambda: Pool(Uniform(9), 0), "Pool: size=0"),
        (lambda: Hardest(Uniform(9), lambda ids, _: ids, 4), "Hardest: candidates=<function"),
        (lambda: Queue(2.5), "Queue: capacity=2.5"),
        (lambda: Queue(3).load_state_dict({"pushed": -3, "ids": torch.zeros(3)}), "pushed=-3"),
    ],
)
def test_numbers_that_are_none_are_named(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_integers_of_numpy_are_integers():
    key, positives = Key(0, 0), torch.tensor([1, 2])
    plain, pool = Uniform(np.int64(9)), Pool(Uniform(9), np.int32(4))
    assert torch.equal(plain(positives, 3, key).ids, Uniform(9)(positives, 3, key).ids)
    assert torch.equal(pool(positives, 3, key).ids, Pool(Uniform(9), 4)(positives, 3, key).ids)


def test_a_source_that_is_told_not_to_weigh_is_not_weighed():
    key, positives = Key(0, 0), torch.tensor([1, 2])
    quiet, loud = (Popularity(torch.ones(9), log_q=told) for told in (False, True))
    for make in (lambda part: Pool(part, 4), lambda part: Mixture([part, Uniform(9)], [1, 1])):
        assert make(quiet)(positives, 3, key).log_q is None
        assert make(loud)(positives, 3, key).log_q is not None
        assert torch.equal(make(quiet)(positives, 3, key).ids, make(loud)(positives, 3, key).ids)


def test_who_cannot_be_asked_ahead():
    hardest = Hardest(Uniform(9), 4, lambda ids, _: ids.float())
    assert not hardest.draws_ahead and not Queue(3).draws_ahead
    assert not Mixture([Uniform(9), hardest], [1, 1]).draws_ahead and Mixture([Uniform(9)], [1]).draws_ahead
    assert not any(hasattr(one, "draws_ahead") for one in (Uniform(9), Pool(Uniform(9), 4), InBatch()))


@pytest.mark.parametrize(
    "outer", [lambda part: Mixture([Uniform(9), part], [1, 1]), lambda part: GivenFirst(GIVEN, part)]
)
def test_a_part_that_scores_gets_the_query(outer):
    seen = []

    def score(ids, _, query):
        seen.append(query)
        return ids.float()

    query = Query(torch.zeros(2, 1, dtype=torch.int64), torch.ones(2, 1, dtype=torch.bool), torch.arange(2))
    outer(Hardest(Uniform(9), 4, score))(torch.tensor([1, 2]), 3, Key(0, 0), owner=torch.arange(2), query=query)
    assert seen == [query]


def test_composite_samplers_name_their_parts():
    source = Uniform(9)
    assert Hardest(source, 4, lambda ids, _: ids.float()).parts == (source,)
    assert Pool(source, 4).parts == (source,)
    assert Mixture([source], [1]).parts == (source,)
    with pytest.raises(AttributeError):
        Pool(source, 4).parts = ()


def test_asking_a_shared_source_out_of_order_warns_of_nothing(recwarn):
    queue = Queue(4)
    queue.push(torch.tensor([3, 1, 2]))
    queue.log_prob(torch.tensor([[1, 2], [3, 1]]).t(), torch.tensor([1, 2]))
    assert not recwarn.list

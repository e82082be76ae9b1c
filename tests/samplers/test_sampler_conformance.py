"""What every sampler promises. The referee is the distribution written down in Python loops (sampler_world)."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from sampler_world import ALL_SAMPLERS, HISTORY, N_ITEMS, N_OWNERS, OWNERS, POSITIVES, ROWS, Case
from scipy import stats

from negwise.draws import Key, counts
from negwise.errors import InputError
from negwise.protocols import Sampler

gpu = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
)
devices = pytest.mark.parametrize("device", ["cpu", gpu])
samplers = pytest.mark.parametrize("case", ALL_SAMPLERS, ids=str)


def draw(case: Case, k, key=None, rows=slice(None), policy="mask", device="cpu"):
    if key is None:
        key = Key(1, 2)
    positives, owner = (torch.from_numpy(v)[rows].to(device) for v in (POSITIVES, OWNERS))
    return case.make(policy)(positives, k, key, owner=owner, **case.extra(device))


def same(a, b, rows=slice(None)):
    pairs = [(a.ids, b.ids), (a.mask, b.mask), (a.log_q, b.log_q), (a.removed, b.removed)]
    return all((x is None and y is None) or torch.equal(x[rows], y) for x, y in pairs)


@samplers
def test_it_is_a_sampler(case):
    assert isinstance(case.make("mask"), Sampler)


@devices
@samplers
@pytest.mark.parametrize("k", [0, 0.4, 1, 3.5, 4])
def test_shapes_types_and_device_follow_the_call(case, k, device):
    negatives = draw(case, k, device=device)
    shape = (ROWS, math.ceil(k))
    assert negatives.ids.shape == negatives.mask.shape == shape
    assert negatives.ids.dtype == torch.int64
    assert negatives.mask.dtype == torch.bool
    assert negatives.ids.device.type == negatives.mask.device.type == device
    assert negatives.removed.shape == (ROWS,)
    assert not negatives.ids[~negatives.mask].any()
    assert int(negatives.ids.max() if k else 0) < N_ITEMS
    if case.probabilities is not None:
        assert negatives.log_q.shape == shape
        assert negatives.log_q.dtype == torch.float32
        assert negatives.log_q.device.type == device
        assert bool(negatives.log_q.isfinite().all())
    if negatives.pool is not None:
        assert torch.equal((negatives.pool[negatives.index] * negatives.mask), negatives.ids)


@devices
@samplers
def test_neither_the_positive_nor_the_history_is_drawn(case, device):
    for step in range(40):
        negatives = draw(case, 5, Key(1, step), device=device)
        for b, (ids, mask) in enumerate(zip(negatives.ids.tolist(), negatives.mask.tolist(), strict=True)):
            drawn = {i for i, real in zip(ids, mask, strict=True) if real}
            assert drawn
            assert POSITIVES[b] not in drawn
            assert not drawn & set(HISTORY[OWNERS[b]])


@devices
@samplers
def test_the_same_key_draws_the_same_and_another_key_something_else(case, device):
    first = draw(case, 4.5, Key(1, 2, 3), device=device)
    assert same(first, draw(case, 4.5, Key(1, 2, 3), device=device))
    if case.random:
        for other in (Key(2, 2, 3), Key(1, 3, 3), Key(1, 2, 4)):
            assert not torch.equal(first.ids, draw(case, 4.5, other, device=device).ids)


@samplers
@pytest.mark.parametrize("split", [1, 7, ROWS - 1])
def test_a_split_batch_draws_what_the_whole_batch_draws(case, split):
    whole = draw(case, 3.5, Key(5, 6, 100))
    assert same(whole, draw(case, 3.5, Key(5, 6, 100), slice(0, split)), slice(0, split))
    assert same(whole, draw(case, 3.5, Key(5, 6, 100 + split), slice(split, None)), slice(split, None))
    order = np.random.default_rng(0).permutation(ROWS)
    assert same(whole, draw(case, 3.5, Key(5, 6, 100 + order), torch.from_numpy(order)), torch.from_numpy(order))


@samplers
def test_rows_get_the_counts_of_eq_8(case):
    negatives = draw(case, 2.5, Key(9, 9))
    assert negatives.mask.sum(1).tolist() == counts(2.5, ROWS, Key(9, 9)).tolist()
    assert bool((negatives.mask[:, :-1] >= negatives.mask[:, 1:]).all())


@samplers
def test_fewer_negatives_are_a_prefix_of_more(case):
    few, many = draw(case, 2, Key(3, 4)), draw(case, 5, Key(3, 4))
    assert torch.equal(few.ids, many.ids[:, :2])


@samplers
def test_no_rows_and_no_negatives_are_no_trouble(case):
    assert draw(case, 3, rows=slice(0, 0)).ids.shape == (0, 3)
    assert draw(case, 0).ids.shape == (ROWS, 0)


@samplers
@pytest.mark.parametrize("policy", ["mask", "replace", "error"])
def test_more_than_there_is_follows_the_policy(case, policy):
    """K = 200 is more than the catalogue, the queue and every list hold."""
    k = 200
    if case.supply is None and case.policy:  # with replacement: there is no end
        negatives = draw(case, k, policy=policy)
        assert bool(negatives.mask.all())
        return
    if policy == "error":
        with pytest.raises(InputError, match=r"row \d+ of the batch wants 200 negatives and has \d+"):
            draw(case, k, policy=policy)
        return
    negatives = draw(case, k, policy=policy)
    if case.supply is not None:
        supply = [case.supply(int(p), int(u)) for p, u in zip(POSITIVES, OWNERS, strict=True)]
        assert negatives.mask.sum(1).tolist() == (supply if policy == "mask" else [k] * ROWS)
    for b in range(ROWS):
        real = negatives.ids[b][negatives.mask[b]].tolist()
        assert POSITIVES[b] not in real
        assert not set(real) & set(HISTORY[OWNERS[b]])
        if policy == "replace":
            assert len(real) == k
            assert set(real[:90]) == set(real)  # what comes after the end of the list is from the list


@samplers
@pytest.mark.parametrize("policy", ["mask", "replace", "error"])
def test_nothing_left_is_masked_or_named_never_filled(case, policy):
    """The last owner knows the whole catalogue."""
    sampler = case.make(policy)
    positives, owner = torch.tensor([3, int(POSITIVES[1])]), torch.tensor([N_OWNERS - 1, int(OWNERS[1])])

    def call():
        return sampler(positives, 2, Key(0, 0), owner=owner, **case.extra("cpu"))

    if policy == "mask":
        negatives = call()
        assert negatives.mask.sum(1).tolist() == [0, 2]
        assert negatives.removed[0] == 1
        assert negatives.ids[0].tolist() == [0, 0]
        assert negatives.log_q is None or bool(negatives.log_q.isfinite().all())
    else:
        with pytest.raises(InputError, match="row 0 of the batch wants 2 negatives and has 0"):
            call()


@samplers
def test_the_removed_share_is_what_exclusion_took(case):
    if case.probabilities is None or case.name in {"Popularity", "Mixture"}:
        pytest.skip("has a test of its own")
    negatives = draw(case, 2)
    source = {
        "InBatch": lambda _: POSITIVES.tolist(),
        "Queue": lambda _: case.make("mask").ids.tolist(),
        "Impression": lambda u: (
            case.make("mask")
            .shown.ids[case.make("mask").shown.offsets[u] : case.make("mask").shown.offsets[u + 1]]
            .tolist()
        ),
    }.get(case.name, lambda _: list(range(N_ITEMS)))
    for b, (p, u) in enumerate(zip(POSITIVES, OWNERS, strict=True)):
        every = source(u)
        gone = sum(i == p or i in HISTORY[u] for i in every)
        assert negatives.removed[b].item() == pytest.approx(gone / len(every), abs=1e-6)


@devices
@samplers
def test_log_q_is_the_probability_written_down(case, device):
    if case.probabilities is None:
        pytest.skip("no closed form")
    for step in range(10):
        negatives = draw(case, 4, Key(2, step), device=device)
        for b in range(ROWS):
            probabilities = case.probabilities(int(POSITIVES[b]), int(OWNERS[b]))
            assert sum(probabilities.values()) == pytest.approx(1)
            real = negatives.mask[b].tolist()
            for i, log_q, drawn in zip(negatives.ids[b].tolist(), negatives.log_q[b].tolist(), real, strict=True):
                if drawn:
                    assert log_q == pytest.approx(math.log(probabilities[i]), abs=2e-6)


@samplers
def test_log_prob_sums_to_one_over_the_catalogue(case):
    sampler = case.make("mask")
    if not hasattr(sampler, "log_prob"):
        pytest.skip("no closed form for any id")
    every = torch.arange(N_ITEMS).repeat(ROWS, 1)
    positives, owner = torch.from_numpy(POSITIVES), torch.from_numpy(OWNERS)
    log_prob = sampler.log_prob(every, positives, owner=owner, **case.extra("cpu"))
    assert torch.allclose(log_prob.exp().sum(1), torch.ones(ROWS), atol=1e-5)
    for b in range(ROWS):
        assert log_prob[b, POSITIVES[b]] == -torch.inf
        assert bool((log_prob[b, HISTORY[OWNERS[b]]] == -torch.inf).all())


@samplers
@pytest.mark.parametrize("slot", [0, 3])
def test_frequencies_follow_the_probabilities(case, slot):
    """Chi-square of one slot over many keys: for samplers without replacement each slot alone has the probabilities."""
    if case.probabilities is None:
        pytest.skip("no closed form")
    row, n = 2, 6000
    probabilities = case.probabilities(int(POSITIVES[row]), int(OWNERS[row]))
    sampler = case.make("mask")
    positives, owner = torch.from_numpy(POSITIVES[row : row + 1]), torch.from_numpy(OWNERS[row : row + 1])
    if case.name == "Pool":  # rows of a step share their pool, so independent draws need steps of their own
        batches = [(1, step) for step in range(n // 6)]
    else:
        batches = [(n, 0)]
    seen: Counter[int] = Counter()
    for rows, step in batches:
        drawn = sampler(positives.repeat(rows), slot + 1, Key(17, step), owner=owner.repeat(rows), **case.extra("cpu"))
        seen.update(drawn.ids[:, slot][drawn.mask[:, slot]].tolist())
    assert set(seen) <= set(probabilities)
    ids = sorted(probabilities)
    observed = np.array([seen[i] for i in ids])
    assert observed.sum() == sum(rows for rows, _ in batches)
    expected = np.array([probabilities[i] for i in ids]) * observed.sum()
    assert stats.chisquare(observed, expected).pvalue > 1e-3


@samplers
def test_bad_requests_are_named(case):
    sampler = case.make("mask")
    owner = torch.from_numpy(OWNERS)
    with pytest.raises(InputError, match="1-D tensor of ids"):
        sampler(torch.from_numpy(POSITIVES)[:, None], 2, Key(0, 0), owner=owner)
    with pytest.raises(InputError, match=r"positives is torch.float32 .*, expected integers"):
        sampler(torch.from_numpy(POSITIVES).float(), 2, Key(0, 0), owner=owner)
    with pytest.raises(InputError, match="owner="):
        sampler(torch.from_numpy(POSITIVES), 2, Key(0, 0))
    with pytest.raises(InputError, match=r"owner holds .* expected 0\.\.7"):
        sampler(torch.from_numpy(POSITIVES), 2, Key(0, 0), owner=owner + N_OWNERS)
    with pytest.raises(InputError, match="one per row"):
        sampler(torch.from_numpy(POSITIVES), 2, Key(0, 0), owner=owner[1:])
    with pytest.raises(InputError, match="k=-1"):
        sampler(torch.from_numpy(POSITIVES), -1, Key(0, 0), owner=owner)
    with pytest.raises(InputError, match="row holds 3 row numbers, but the batch has 16"):
        sampler(torch.from_numpy(POSITIVES), 1, Key(0, 0, np.arange(3)), owner=owner)
    if case.name != "Mixture":
        with pytest.raises(InputError, match="on_shortage='pad'"):
            case.make("pad")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@samplers
def test_a_gpu_draws_what_the_cpu_draws(case):
    here, there = draw(case, 6.5, Key(4, 5)), draw(case, 6.5, Key(4, 5), device="cuda")
    assert torch.equal(here.ids, there.ids.cpu())
    assert torch.equal(here.mask, there.mask.cpu())
    if here.log_q is not None:
        assert torch.allclose(here.log_q, there.log_q.cpu(), atol=1e-6)

"""Draws from a catalogue: numba against plain torch bit for bit, bitmap against search, and large worlds."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from negwise.draws import Key
from negwise.errors import InputError, MissingExtra
from negwise.samplers import Exclusions, Given, Impression, Lists, Popularity, Uniform
from negwise.samplers.distribution import AliasTable, CatalogueSampling, UniformDistribution


def world(seed, n_items, n_owners, most):
    rng = np.random.default_rng(seed)
    lists = [
        rng.choice(n_items, rng.integers(0, min(most, n_items) + 1), replace=False).tolist() for _ in range(n_owners)
    ]
    return rng, Lists.of(lists), lists


@given(
    seed=st.integers(0, 2**32),
    n_items=st.integers(1, 200),
    most=st.sampled_from([0, 3, 200]),
    rows=st.integers(0, 40),
    k=st.one_of(st.integers(0, 9), st.floats(0, 9)),
    kind=st.sampled_from(["uniform", "popularity"]),
    far=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_numba_and_torch_and_search_and_bitmap_draw_the_same_bits(seed, n_items, most, rows, k, kind, far):
    """Owners who know everything, zero weights, ragged counts and far row numbers included."""
    pytest.importorskip("numba")
    rng, lists, _ = world(seed, n_items, 7, most)
    positives = torch.from_numpy(rng.integers(0, n_items, rows))
    owner = torch.from_numpy(rng.integers(0, 7, rows))
    counts = torch.from_numpy(np.append(rng.integers(0, 3, n_items - 1), 1) ** 3)
    key = Key(int(rng.integers(0, 2**63)), 2**32 - 1, 2**43 + 5 if far else 3)
    drawn = []
    for impl in ("numba", "torch"):
        for bitmap in (True, False):
            known = Exclusions.of(lists, n_items, bitmap=bitmap)
            if kind == "uniform":
                sampler = Uniform(n_items, known, impl=impl)
            else:
                sampler = Popularity(counts, exclude=known, impl=impl)
            drawn.append(sampler(positives, k, key, owner=owner))
    for other in drawn[1:]:
        for name in ("ids", "mask", "log_q", "removed"):
            assert torch.equal(getattr(drawn[0], name), getattr(other, name)), name


def countable() -> AliasTable:
    """An alias table with so few units that they can be written out; its columns are not looked at."""
    masses = torch.arange(40) % 7
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), masses.cumsum(0)))
    return AliasTable(masses, masses, masses, starts, masses.double())


@pytest.mark.parametrize("distribution", [UniformDistribution(40), countable()], ids=["uniform", "alias"])
def test_the_draw_that_cannot_fail_finds_every_unit(distribution):
    """All units of a small distribution against the list of allowed units written out; a positive known and unknown."""
    lists = [[3, 7, 8, 39], [], [0, 1, 2, 38, 39], list(range(39))]
    sampling = CatalogueSampling.of(distribution, Exclusions.of(Lists.of(lists), 40))
    compiled = pytest.importorskip("negwise.samplers.compiled_draws")
    nothing = torch.zeros(0, dtype=torch.int64)
    masses, starts = nothing, nothing
    if isinstance(distribution, AliasTable):
        masses, starts = distribution.masses, distribution.starts
    for owner, known in enumerate(lists):
        for positive in (0, 3, 20, 39):
            units = [
                i
                for i in range(40)
                if i != positive and i not in known
                for _ in range(int(distribution.mass(torch.tensor(i))))
            ]
            if not units:
                continue
            n = len(units)
            rows = sampling.rows(torch.full((n,), positive), torch.full((n,), owner))
            assert sampling.bisect(rows, torch.arange(n)).tolist() == units
            start, end = sampling.exclusions.offsets[owner : owner + 2].tolist()
            arrays = [t.numpy() for t in (starts, masses, sampling.exclusions.ids, sampling.excluded_mass)]
            loop = [
                compiled.bisect_slot(u, positive, 40, arrays[0], arrays[1], arrays[2], start, end, arrays[3])
                for u in range(n)
            ]
            assert loop == units


def test_only_one_id_left_is_found_among_many():
    """Rejection alone would need 50,000 tries a draw; the work here is bounded."""
    n = 50_000
    known = Exclusions.of(Lists.of([[i for i in range(n) if i not in (17, 40_000)]]), n)
    zero = torch.zeros(64, dtype=torch.int64)
    for impl in ("torch", "auto"):
        drawn = Uniform(n, known, impl=impl)(zero + 17, 5, Key(0, 0), owner=zero)
        assert bool((drawn.ids == 40_000).all())
        assert bool((drawn.log_q == 0).all())
        assert drawn.removed[0] == pytest.approx(1 - 1 / n)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.75, 1.0, 2.0])
def test_popularity_follows_the_power_law(alpha):
    """Chi-square on 300 ids, against counts ** alpha without the positive."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 500, 300)
    positive = 42
    drawn = Popularity(torch.from_numpy(counts), alpha)(torch.full((2000,), positive), 100, Key(5, 1))
    expected = counts.astype(float) ** alpha
    expected[positive] = 0
    observed = np.bincount(drawn.ids.flatten().numpy(), minlength=300)
    assert observed[positive] == 0
    keep = expected > 0
    expected *= observed.sum() / expected.sum()
    assert stats.chisquare(observed[keep], expected[keep]).pvalue > 1e-3
    want = np.log(expected[drawn.ids[0].numpy()] / observed.sum())
    assert drawn.log_q[0].tolist() == pytest.approx(want.tolist(), abs=2e-6)


@pytest.mark.parametrize("make", [lambda: Uniform(1000), lambda: Popularity(torch.arange(1000) + 1)])
def test_slots_of_a_row_are_independent(make):
    """Chi-square of the joint of two slots, by quarters of the catalogue's mass."""
    drawn = make()(torch.zeros(40_000, dtype=torch.int64), 2, Key(8, 8))
    quarters = [np.searchsorted(np.quantile(slot, [0.25, 0.5, 0.75]), slot) for slot in drawn.ids.numpy().T]
    table = np.histogram2d(*quarters, bins=4)[0]
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_uniform_reaches_both_ends_of_a_large_catalogue():
    n = 2**30
    drawn = Uniform(n)(torch.zeros(1000, dtype=torch.int64), 200, Key(1, 1)).ids
    assert stats.kstest(drawn.flatten().numpy() / n, "uniform").pvalue > 1e-3


def test_the_share_removed_by_popularity_is_mass_not_ids():
    counts = torch.tensor([50, 30, 15, 5])
    known = Exclusions.of(Lists.of([[0], []]), 4)
    drawn = Popularity(counts, exclude=known)(torch.tensor([2, 2]), 1, Key(0, 0), owner=torch.tensor([0, 1]))
    assert drawn.removed.tolist() == pytest.approx([0.65, 0.15], abs=1e-6)


def test_masses_of_many_owners_may_wrap_around():
    """40,000 owners who know an id of about 2^48 units pass 2^63 in the running sum; differences still tell."""
    n, owners = 2**16, 40_000
    counts = torch.ones(n)
    counts[0] = 1e6
    known = Exclusions.of(Lists.of_pairs(torch.arange(owners), torch.zeros(owners).long(), owners), n)
    table = AliasTable.of(counts)
    sampling = CatalogueSampling.of(table, known)
    assert int(sampling.excluded_mass.min()) < 0
    assert bool((sampling.remaining_mass == table.total - table.masses[0]).all())
    zero = torch.zeros(50, dtype=torch.int64)
    drawn = Popularity(counts, exclude=known)(zero + 5, 40, Key(0, 0), owner=zero + owners - 1)
    assert int(drawn.ids.min()) >= 1
    assert drawn.log_q.exp().unique().tolist() == pytest.approx([1 / (n - 2)], rel=1e-4)


def test_log_q_may_be_left_out():
    assert Popularity(torch.ones(5), log_q=False)(torch.tensor([1]), 2, Key(0, 0)).log_q is None


def test_a_sampler_says_which_implementation_runs(monkeypatch):
    assert Uniform(5, impl="torch").which() == "torch"
    assert Uniform(5).which("cuda") == "torch"
    pytest.importorskip("numba")
    assert Uniform(5).which() == Popularity(torch.ones(5)).which() == "numba"
    monkeypatch.setattr("negwise.samplers.draw_request.find_spec", lambda _: None)
    assert Uniform(5).which() == "torch"


def test_without_numba_asking_for_it_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingExtra, match=r"pip install 'negwise\[train\]'"):
        Uniform(5, impl="numba")(torch.tensor([1]), 2, Key(0, 0))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Uniform(0), "n_items=0"),
        (lambda: Uniform(2**30 + 1), "n_items"),
        (lambda: Uniform(True), "n_items=True"),
        (lambda: Uniform(2.5), "n_items=2.5"),
        (lambda: Popularity([1, 2, 3]), r"counts is a list; expected a torch tensor"),
        (lambda: Uniform(9)(torch.tensor([1]), 1, Key(0, 0, torch.tensor([-5]))), r"row numbers -5\.\.-5"),
        (lambda: Uniform(5, impl="cuda"), "impl='cuda'"),
        (lambda: Uniform(5, Exclusions.of(Lists.of([[1]]), 6)), "n_items=6"),
        (lambda: Popularity(torch.ones(3), alpha=-1), "alpha=-1"),
        (lambda: Exclusions.of(Lists.of([[6]]), 6), "id 6"),
        (lambda: Lists.of([[-1]]), "id -1"),
        (lambda: Lists(torch.tensor([0, 2, 1]), torch.tensor([4])), "fall after owner 1"),
        (lambda: Lists(torch.tensor([0, 2]), torch.tensor([4])), "from 0 to 1"),
        (lambda: Lists(torch.tensor([0.0]), torch.tensor([4])), "float"),
        (lambda: Lists.of_pairs(torch.tensor([3]), torch.tensor([1]), 3), "owners 3..3"),
        (lambda: Lists.of_pairs(torch.tensor([3, 1]), torch.tensor([1]), 3), "as many"),
        (lambda: Uniform(5)(torch.tensor([5]), 1, Key(0, 0)), r"positives holds 5\.\.5, expected 0\.\.4"),
    ],
)
def test_bad_requests_are_named(make, says):
    with pytest.raises(InputError, match=says):
        make()


def test_lists_keep_order_and_make_sets():
    lists = Lists.of_pairs(torch.tensor([2, 0, 2, 2]), torch.tensor([9, 4, 1, 9]), 4)
    assert lists.lengths.tolist() == [1, 0, 3, 0]
    assert lists.ids.tolist() == [4, 9, 1, 9]
    assert lists.distinct().ids.tolist() == [4, 1, 9]
    assert lists.owners.tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("plain", [[[], [1, 4], [], [0, 2], []], [[3]], [[], []], [[2, 3], [1]]])
def test_lists_that_are_sorted_sets_are_not_sorted_again(plain):
    """Empty lists at the ends, and a list that begins below the end of the one before."""
    lists = Lists.of(plain)
    assert lists.distinct() is lists
    for spoiled in ([*plain, [2, 1]], [*plain, [1, 1]], [[2, 2], *plain]):
        made = Lists.of(spoiled).distinct()
        assert [made.ids[a:b].tolist() for a, b in zip(made.offsets, made.offsets[1:], strict=False)] == [
            sorted(set(one)) for one in spoiled
        ]


@given(seed=st.integers(0, 2**32), n_items=st.integers(2, 200))
@settings(max_examples=40, deadline=None)
def test_ids_of_32_bits_draw_the_same(seed, n_items):
    rng, lists, _ = world(seed, n_items, 7, 20)
    small = Lists(lists.offsets, lists.ids.int())
    positives, owner = torch.from_numpy(rng.integers(0, n_items, 9)), torch.from_numpy(rng.integers(0, 7, 9))
    pairs = [
        (Impression(lists), Impression(small)),
        (Given(lists), Given(small)),
        (Uniform(n_items, Exclusions.of(lists, n_items)), Uniform(n_items, Exclusions.of(small, n_items))),
    ]
    for one, other in pairs:
        drawn, again = (sampler(positives, 4, Key(seed, 0), owner=owner) for sampler in (one, other))
        assert again.ids.dtype == torch.int64
        assert torch.equal(drawn.ids, again.ids) and torch.equal(drawn.mask, again.mask)


@given(seed=st.integers(0, 2**32), n_items=st.integers(1, 300), bitmap=st.booleans())
@settings(max_examples=40, deadline=None)
def test_exclusions_contain_what_python_sets_contain(seed, n_items, bitmap):
    """Duplicates in, bit 63 and the last word included."""
    _, _, plain = world(seed, n_items, 5, 300)
    twice = Lists.of([one + one for one in plain])
    known = Exclusions.of(twice, n_items, bitmap=bitmap)
    got = known.contains(torch.arange(5)[:, None], torch.arange(n_items))
    assert got.tolist() == [[i in one for i in range(n_items)] for one in plain]
    assert (known.bits is not None) == bitmap

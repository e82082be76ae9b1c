"""Counter-based randomness: published known answers, NumPy against torch, and chi-square for eq. 8."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from negwise.draws import Key, Stream, block, counts, max_count, philox
from negwise.errors import InputError

# Random123, tests/kat_vectors: philox4x32, 10 rounds.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize("make", [lambda v: np.array([v]), lambda v: torch.tensor([v])], ids=["numpy", "torch"])
@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(make, counter, key, words):
    out = philox(*(make(word) for word in counter), *key)
    assert tuple(int(word[0]) for word in out) == words


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_numba_philox_gives_the_published_answers(counter, key, words):
    compiled = pytest.importorskip("negwise.samplers.compiled_draws")
    out = compiled.philox_scalar(*(np.uint32(word) for word in (*counter, *key)))
    assert tuple(int(word) for word in out) == words


def test_philox_is_the_papers():
    """The reference is Philox in Python integers, as its paper writes it."""

    def plain(counter, key):
        c, k = list(counter), list(key)
        for _ in range(10):
            hi0, lo0 = divmod(0xD2511F53 * c[0], 2**32)
            hi1, lo1 = divmod(0xCD9E8D57 * c[2], 2**32)
            c = [hi1 ^ c[1] ^ k[0], lo1, hi0 ^ c[3] ^ k[1], lo0]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        return tuple(c)

    rng = np.random.default_rng(0)
    counters, key = rng.integers(0, 2**32, (50, 4)), tuple(int(v) for v in rng.integers(0, 2**32, 2))
    out = np.stack(philox(*counters.T, *key), 1)
    assert [tuple(row) for row in out.tolist()] == [plain(map(int, row), key) for row in counters]


def test_the_counter_is_laid_out_as_documented():
    """block() of (seed, step, row, stream, lap) is Philox of exactly the documented words."""
    seed, step, row, lap = 0x0123456789ABCDEF, 0xDEADBEEF, 0x7AB_12345678, 5
    got = block(Key(seed, step), np.array([row]), np.array([9]), Stream.PART, lap)
    c3 = lap << 16 | Stream.PART << 12 | 0x7AB
    want = philox(*(np.array([c]) for c in (9, 0x12345678, step, c3)), 0x89ABCDEF, 0x01234567)
    assert [int(w[0]) for w in got] == [int(w[0]) for w in want]


@given(
    k=st.floats(0, 50),
    seed=st.integers(0, 2**64 - 1),
    step=st.integers(0, 2**32 - 1),
    row=st.integers(0, 2**44 - 40),
    split=st.integers(0, 30),
)
@settings(max_examples=60, deadline=None)
def test_counts_do_not_depend_on_the_batch_split_or_on_the_library(k, seed, step, row, split):
    whole = counts(k, 30, Key(seed, step, row))
    parts = [counts(k, split, Key(seed, step, row)), counts(k, 30 - split, Key(seed, step, row + split))]
    assert np.array_equal(whole, np.concatenate(parts))
    shuffled = np.random.default_rng(0).permutation(30)
    assert np.array_equal(whole[shuffled], counts(k, 30, Key(seed, step, row + shuffled)))
    tensor = counts(k, 30, Key(seed, step, torch.arange(row, row + 30)))
    assert tensor.dtype == torch.int64
    assert np.array_equal(whole, tensor.numpy())
    assert set(whole.tolist()) <= {int(np.floor(k)), int(np.floor(k)) + 1}
    assert whole.max() <= max_count(k)


@pytest.mark.parametrize("k", [0, 1, 7, 131072])
def test_a_whole_k_is_not_random(k):
    assert set(counts(k, 1000, Key(1, 2)).tolist()) == {k}


@pytest.mark.parametrize("k", [0.001, 0.5, 1.25, 2.999, 180.25])
@pytest.mark.parametrize(
    "many",
    [
        lambda k, n: counts(k, n, Key(7, 3)),
        lambda k, n: np.array([counts(k, 1, Key(7, step))[0] for step in range(n // 20)]),
        lambda k, n: np.array([counts(k, 1, Key(seed, 3))[0] for seed in range(n // 20)]),
    ],
    ids=["rows", "steps", "seeds"],
)
def test_the_mean_is_k(k, many):
    """Exact binomial test of the share of [k] + 1, over rows, steps and seeds."""
    drawn = many(k, 100_000) - int(np.floor(k))
    assert stats.binomtest(int(drawn.sum()), len(drawn), k - np.floor(k)).pvalue > 1e-3


def test_the_threshold_is_exact():
    """One 53-bit value below {k} rounds up and the next one does not: found by bisection on k itself."""
    first, second, *_ = block(Key(0, 0), np.array([4]), np.array([0]), Stream.COUNT)
    u = ((int(first[0]) << 21) | (int(second[0]) >> 11)) / 2**53
    assert counts(u, 1, Key(0, 0, 4))[0] == 0
    assert counts(np.nextafter(u, 1), 1, Key(0, 0, 4))[0] == 1


@pytest.mark.parametrize("near", ["row", "step", "seed"])
def test_neighbours_are_independent(near):
    """Chi-square of the 2 x 2 table of a row's count and its neighbour's, at {k} = 0.3."""
    n = 50_000
    here = counts(2.3, n, Key(11, 5))
    there = {
        "row": lambda: counts(2.3, n, Key(11, 5, 1)),
        "step": lambda: counts(2.3, n, Key(11, 6)),
        "seed": lambda: counts(2.3, n, Key(12, 5)),
    }[near]()
    table = np.histogram2d(here, there, bins=2)[0]
    assert stats.chi2_contingency(table, correction=False).pvalue > 1e-3


def test_streams_and_laps_are_independent_and_uniform():
    """16 x 16 chi-square of the top bits of two streams, and of two laps, of the same key."""
    rows, zero = np.arange(100_000), np.zeros(100_000, np.int64)
    one = block(Key(3, 1), rows, zero, Stream.COUNT)[0] >> 28
    for other in (
        block(Key(3, 1), rows, zero, Stream.ITEM)[0] >> 28,
        block(Key(3, 1), rows, zero, Stream.COUNT, lap=1)[0] >> 28,
    ):
        table = np.histogram2d(one, other, bins=16)[0]
        assert stats.chisquare(table.ravel()).pvalue > 1e-3
        assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize("k", [-1, float("nan"), float("inf"), 2**31 + 1, True, "4", None, np.array([1, 2])])
def test_an_invalid_k_is_refused(k):
    with pytest.raises(InputError, match="k"):
        counts(k, 4, Key(0, 0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Key(-1, 0),
        lambda: Key(2**64, 0),
        lambda: Key(0, 2**32),
        lambda: Key(0, 1.0),
        lambda: Key(0, 0, -1),
        lambda: Key(0, 0, 2**44),
        lambda: Key(0, 0, np.array([0.5])),
        lambda: Key(0, 0, np.array([-1])),
        lambda: Key(0, 0, torch.tensor([[1]])),
        lambda: Key(0, 0, torch.tensor([1.0])),
        lambda: counts(1.5, 3, Key(0, 0, np.arange(4))),
    ],
)
def test_a_key_out_of_range_is_refused(make):
    with pytest.raises(InputError, match="Key"):
        make()


def test_elliot_defect_half_a_negative_is_a_number_of_negatives():
    """elliot's ``neg_ratio=0.5`` raises a TypeError; here half the rows get one."""
    drawn = counts(0.5, 10_000, Key(0, 0))
    assert set(drawn.tolist()) == {0, 1}
    assert abs(drawn.mean() - 0.5) < 0.02


def test_importing_draws_does_not_import_torch():
    code = "import sys, negwise.draws as d; d.counts(2.5, 3, d.Key(0, 0)); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_counts_as_the_cpu_does():
    there = counts(2.5, 10_000, Key(1, 2, torch.arange(2**40, 2**40 + 10_000, device="cuda")))
    assert there.device.type == "cuda"
    assert np.array_equal(there.cpu().numpy(), counts(2.5, 10_000, Key(1, 2, 2**40)))


def test_a_negative_number_of_rows_is_refused():
    with pytest.raises(InputError, match="rows=-4"):
        counts(3.5, -4, Key(0, 0))

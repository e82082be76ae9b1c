"""Integer distributions: the alias table gives back its masses exactly, and bounded integers are what they claim."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from negwise.errors import InputError
from negwise.samplers.distribution import UNIT, AliasTable, apportion
from negwise.samplers.draw_request import scale_words

weights = st.lists(st.one_of(st.just(0.0), st.floats(1e-12, 1e12)), min_size=1, max_size=70).filter(any)


@given(weights)
@settings(max_examples=150, deadline=None)
def test_the_alias_table_holds_exactly_its_masses(values):
    """Add up, in Python integers, what every column gives to every id."""
    table = AliasTable.of(torch.tensor(values, dtype=torch.float64))
    given_out = [0] * table.n_items
    for column, (threshold, alias) in enumerate(zip(table.threshold.tolist(), table.alias.tolist(), strict=True)):
        assert 0 <= threshold < UNIT
        if threshold:
            given_out[column] += threshold
        given_out[alias] += UNIT - threshold
    assert given_out == table.masses.tolist()
    assert sum(given_out) == table.total
    assert table.starts.tolist() == [0, *np.cumsum(table.masses.numpy()).tolist()]
    assert [mass > 0 for mass in given_out] == [value > 0 for value in values]


@given(weights)
@settings(max_examples=100, deadline=None)
def test_masses_are_the_weights_to_within_a_unit_each(values):
    values = np.array(values)
    total = (1 << max(len(values) - 1, 0).bit_length()) * UNIT
    masses = apportion(values, total)
    assert masses.sum() == total
    exact = values / values.sum() * total
    slack = np.ones(len(values))
    # The largest id pays for the unit that ids too rare for one are given.
    slack[masses >= masses.max() - len(values)] = len(values) + 1
    assert (np.abs(masses - exact) <= slack + exact * 1e-12).all()


def test_equal_weights_give_equal_masses():
    """Leftover units are spread, not heaped on one id."""
    masses = AliasTable.of(torch.ones(1000)).masses
    assert int(masses.max() - masses.min()) <= 1


@pytest.mark.parametrize(
    "bad", [torch.zeros(3), torch.tensor([1.0, -1]), torch.tensor([1.0, float("nan")]), torch.ones(2, 2), torch.ones(0)]
)
def test_weights_that_are_no_weights_are_refused(bad):
    with pytest.raises(InputError, match="weights"):
        AliasTable.of(bad)


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**62 - 1))
@settings(max_examples=300, deadline=None)
def test_scale_is_the_upper_half_of_the_product(x, n):
    """Against Python's integers, for bounds of one and of two words."""
    hi, lo = torch.tensor([x >> 32]), torch.tensor([x & 0xFFFFFFFF])
    want = (x * n) >> 64
    assert int(scale_words(hi, lo, n)) == want
    assert int(scale_words(hi, lo, torch.tensor([n]))) == want
    small = n % (2**31 - 1) + 1
    assert int(scale_words(hi, lo, small)) == (x * small) >> 64
    compiled = pytest.importorskip("negwise.samplers.compiled_draws")
    assert int(compiled.scale_scalar(np.uint32(x >> 32), np.uint32(x & 0xFFFFFFFF), n)) == want


def test_draw_reads_columns_and_coins_as_documented():
    table = AliasTable.of(torch.tensor([1.0, 2, 3, 4, 5]))
    assert (len(table.alias), table.shift) == (8, 29)
    for column in range(8):
        threshold = int(table.threshold[column])
        hi = torch.tensor([column << 29])
        if threshold:
            assert int(table.draw(hi, torch.tensor([threshold - 1]))) == column
        assert int(table.draw(hi, torch.tensor([threshold]))) == int(table.alias[column])

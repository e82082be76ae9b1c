"""A small version of the coverage simulation; the full one is ``python -m benchmarks coverage``."""

import pytest

from benchmarks.coverage import coverage


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1.0, 4.0])
def test_the_interval_holds_the_truth(mu):
    found = coverage(mu, queries=500, replications=60, seed=11)
    assert found.ok >= 40
    # 60 replications of a true 90% lie in here with probability 0.999.
    assert 0.76 <= found.share <= 1.0
    assert found.share < 1.0 or found.ok < 60

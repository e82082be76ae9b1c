"""The scale of the learning rate against a loop over the steps."""

import pytest

from negwise.schedule import training_fraction
from negwise.tasks.recipes import rate_schedule


def by_hand(warmup, decay, steps):
    """Steps that rise, one by one, to the full rate; then it holds; then it falls, one by one, to just above 0."""
    rising, falling = min(warmup, steps // 10), decay * steps
    scales = []
    for step in range(steps):
        scale = 1.0
        if step < rising:
            scale = (step + 1) / (rising + 1)
        if steps - step < falling:
            scale = min(scale, (steps - step) / falling)
        scales.append(scale)
    return scales


@pytest.mark.parametrize("steps", [1, 2, 9, 10, 57, 400, 2500])
@pytest.mark.parametrize(("warmup", "decay"), [(100, 0.5), (0, 0.5), (100, 0.0), (5, 1.0), (7, 0.3)])
def test_it_rises_holds_and_falls(warmup, decay, steps):
    scale = rate_schedule(warmup, decay, steps)
    found = [1.0 if scale is None else scale(training_fraction(step, steps)) for step in range(steps)]
    assert found == pytest.approx(by_hand(warmup, decay, steps))
    assert all(0 < one <= 1 for one in found)


def test_a_constant_rate_has_no_schedule():
    assert rate_schedule(0, 0.0, 100) is None
    assert rate_schedule(100, 0.0, 9) is None  # a tenth of nine steps is none


def test_longer_runs_begin_alike():
    """Up to the fall of the shorter one, so that runs can be compared on the way."""
    short, long = rate_schedule(20, 0.5, 400), rate_schedule(20, 0.5, 900)
    for step in range(201):
        assert short(training_fraction(step, 400)) == pytest.approx(long(training_fraction(step, 900)))
    assert short(training_fraction(300, 400)) < long(training_fraction(300, 900)) == 1

"""What a rule that watches the model is told of a step."""

import math

import numpy as np
import pytest
import torch
from train_world import make_world, run

from negwise.samplers import Impression, Lists
from negwise.training import EpochOrder
from negwise.training.forward_pass import COUNTS
from negwise.training.k_control import KController


class Noting:
    """K is 5; what was observed is kept."""

    def __init__(self):
        self.seen = []

    def init(self):
        return {}

    def update(self, observation, state):
        self.seen.append(observation)
        return 5.0, state

    def __repr__(self):
        return "Noting()"


def test_rows_count_with_the_negatives_that_they_had(tmp_path):
    """Impressions of 2 to 8 others, by a loop over the rows of each batch."""
    world, rule = make_world(shown=True), Noting()
    lists = [[item for item in world.impressions[row] if item != world.train.positives[row]] for row in range(157)]
    sampler = Impression(Lists.of([[int(item) for item in row] for row in lists]))
    run(tmp_path, world=world, sampler=sampler, rule=rule, lag=2, splits={})
    assert rule.seen[1].log_k1 is None
    order = EpochOrder(len(world.train), 10, 3)
    for at, observation in enumerate(rule.seen[2:]):
        sizes = np.array([min(5, len(lists[row])) for row in order.batch(at)])
        assert len(set(sizes)) > 1 and observation.k == 5
        assert (observation.rows, observation.pairs) == (len(sizes), sizes.sum())
        assert observation.log_k1 == pytest.approx(sum(math.log(size + 1) for size in sizes))
    assert len(rule.seen) == 17


@pytest.mark.parametrize(("given", "told"), [(0.0, 21.0), (6.0, None)])
def test_given_negatives_hide_how_many_were_drawn(given, told):
    """The sum of ln(K + 1) is over all negatives of a row, so it says nothing of the drawn ones beside given ones."""
    rule = Noting()
    controller = KController(rule, 9, lag=1)
    controller.k(0)
    counts = {"log_k1": 21.0, "pairs": 100.0, "wins": 60.0, "given_pairs": given, "rows": 10.0, "hits": 2.0}
    controller.observe(0, torch.tensor([counts.get(name, 0.0) for name in COUNTS], dtype=torch.float64))
    controller.k(1)
    assert (rule.seen[1].log_k1, rule.seen[1].pairs) == (told, 100 - given)

"""Defects of other libraries' samplers, each one a test that ours does not have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from negwise.draws import Key
from negwise.errors import InputError
from negwise.samplers import Exclusions, Given, Impression, Lists, Mixture, Popularity, Uniform


def test_newsreclib_phantom_negatives_of_short_rows():
    """Rows shorter than K leave zeros in newsreclib's softmax; here the mask says which slots are real."""
    shown = Lists.of([[4, 5, 6, 7], [8]])
    drawn = Impression(shown)(torch.tensor([9, 9]), 4, Key(0, 0), owner=torch.tensor([0, 1]))
    assert drawn.mask.tolist() == [[True] * 4, [True, False, False, False]]
    # -inf where masked: the log-sum-exp is that of the real negatives alone.
    logits = torch.ones(2, 4).masked_fill(~drawn.mask, -torch.inf)
    assert torch.allclose(logits.logsumexp(1), 1 + torch.tensor([4.0, 1.0]).log())


def test_recommenders_padding_with_news_id_0():
    """Id 0 is an id like any other: drawn when it was shown, and masked where it only fills a slot."""
    drawn = Impression(Lists.of([[0, 3], [3]]))(torch.tensor([9, 9]), 2, Key(0, 0), owner=torch.tensor([0, 1]))
    assert sorted(drawn.ids[0][drawn.mask[0]].tolist()) == [0, 3]
    assert drawn.ids[1][drawn.mask[1]].tolist() == [3]


def test_flagembedding_repeats_negatives_silently():
    """Repeats come only by ``on_shortage="replace"``, and the other policies do not repeat."""
    lists, owner, positives = Lists.of([[4, 5]]), torch.tensor([0]), torch.tensor([9])
    masked = Given(lists)(positives, 5, Key(0, 0), owner=owner)
    assert masked.ids[masked.mask].tolist() == [4, 5]
    assert Given(lists, on_shortage="replace")(positives, 5, Key(0, 0), owner=owner).mask.all()
    with pytest.raises(InputError, match="wants 5 negatives and has 2"):
        Given(lists, on_shortage="error")(positives, 5, Key(0, 0), owner=owner)


@pytest.mark.parametrize("make", [lambda e: Uniform(50, e), lambda e: Popularity(torch.ones(50), exclude=e)])
def test_gsasrec_legommenders_rectools_negatives_that_are_the_positive_or_the_history(make):
    rng = np.random.default_rng(0)
    history = [rng.choice(50, 30, replace=False).tolist() for _ in range(20)]
    sampler = make(Exclusions.of(Lists.of(history), 50))
    owner = torch.arange(20).repeat(50)
    positives = torch.from_numpy(rng.integers(0, 50, 1000))
    drawn = sampler(positives, 20, Key(0, 0), owner=owner)
    assert not bool((drawn.ids == positives[:, None]).any())
    assert not any(set(row) & set(history[u]) for row, u in zip(drawn.ids.tolist(), owner.tolist(), strict=True))


def test_transformers4rec_truncates_sorted_unique_ids():
    """Its log-uniform sampler keeps the smallest ids: the share of ids >= 1000 falls from 35% to 8.6%.

    Ours on the same log-uniform distribution over 10,000 ids has the share that the distribution has.
    """
    n = 10_000
    weights = np.log1p(1 / np.arange(1, n + 1))
    drawn = Popularity(torch.from_numpy(weights))(torch.zeros(500, dtype=torch.int64), 200, Key(0, 0)).ids
    share = weights[1000:].sum() / weights[1:].sum()
    assert stats.binomtest(int((drawn >= 1000).sum()), drawn.numel(), share).pvalue > 1e-3


def test_merlin_refuses_log_q_with_more_than_one_sampler():
    """Ours is exact for a mixture: log of sum w_i q_i, by enumeration."""
    counts = torch.tensor([1.0, 2, 3, 4])
    drawn = Mixture([Uniform(4), Popularity(counts)], [0.25, 0.75])(torch.tensor([0]), 50, Key(0, 0))
    q = {i: 0.25 / 3 + 0.75 * float(counts[i]) / 9 for i in (1, 2, 3)}
    assert drawn.log_q[0].exp().tolist() == pytest.approx([q[i] for i in drawn.ids[0].tolist()], rel=1e-6)


def test_recbole_and_elliot_k_is_a_number_not_a_mode():
    """K=0.5 and K=2.5 are as good as K=2, and K stays the number of negatives of one row."""
    drawn = Uniform(100)(torch.zeros(10_000, dtype=torch.int64), 0.5, Key(0, 0))
    assert drawn.ids.shape == (10_000, 1)
    assert abs(drawn.mask.float().mean() - 0.5) < 0.02

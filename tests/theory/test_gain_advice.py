"""The sentence about K, over cases: free negatives, dear ones, shares or times that are not known."""

import pytest

from negwise.records import GainShare
from negwise.theory.gain_advice import Measured, advice, contradiction

KS = (1, 4, 20, 100, 300, 1000)
SHARES = (0.0, 0.2, 0.65, 0.91, 0.97, 1.0)


def rows(seconds=None, shares=SHARES, metric="ndcg@10"):
    """``seconds(k)`` of a step; None where it is not known."""
    times = [None if seconds is None else seconds(k) for k in KS]
    return [GainShare(k, metric, share, seconds=time) for k, share, time in zip(KS, shares, times, strict=True)]


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (rows(lambda k: 1 + 1e-5 * k), "K = 100 has about nine tenths of the gain of K = 1,000 and takes 99% of its"),
        (rows(lambda k: 1 + 1e-5 * k), "take K = 1,000."),
        (rows(lambda k: 1 + 0.002 * k), "Each negative costs time. K = 100 has about nine tenths"),
        (rows(lambda k: 1 + 0.002 * k), "takes 40% of its time: take K = 100."),
        (rows(lambda k: 0.1 + k, (0.0, 0.8, 0.85, 0.95, 0.99, 1.0)), "K = 4 has about eight tenths"),
        (rows(lambda _: 1.0, (0.0, 0.1, 0.2, 0.4, 0.6, 1.0)), "nearly free here, and the gain grows to the end"),
        (
            rows(lambda k: k, (0.0, 0.1, 0.2, 0.3, 0.4, 1.0)),
            "costs time, and the gain grows to the end: take K = 1,000",
        ),
        (rows(), "The time of a step at each K was not measured, so take the largest K that costs you nothing."),
        (rows(lambda _: 1.0, [None] * 6), "not known for ndcg@10 here. A step with K = 1,000 takes 1.00 times"),
        (rows(lambda _: 1.0, [None] * 6), "leave K to the online rule"),
        (rows(lambda k: k, [None] * 6), "run negwise sweep --k 1,4,20,100 on the same data."),
        (rows(None, [None] * 6), "not measured either"),
        ([], "no K to choose"),
        ([GainShare(1, "auc")], "no K to choose"),
    ],
)
def test_the_sentence(shares, words):
    assert words in advice(shares)
    assert words in advice(shares[::-1])  # in any order


def test_a_k_whose_time_is_not_known_is_not_recommended():
    known = rows(lambda k: 1.0 if k <= 100 else None)
    assert advice(known).endswith("take K = 100.")


def test_free_negatives_that_were_not_timed_to_the_end():
    found = advice(rows(lambda k: 1.0 if k <= 20 else None))
    assert "nearly free up to K = 20, the largest K here whose step was timed." in found
    assert found.endswith("take K = 100 if a step with it is about as fast.")


def test_free_negatives_up_to_a_k_that_is_enough():
    found = advice(rows(lambda k: 1.0 if k <= 300 else None, (0.0, 0.2, 0.4, 0.6, 0.95, 1.0)))
    assert found == (
        "Negatives are nearly free up to K = 300, which has nearly all of the gain of K = 1,000: take K = 300."
    )


def test_the_metric_is_called_as_asked():
    assert "not known for HR@5 here" in advice(rows(None, [None] * 6, "hit@5"), "HR@5")


@pytest.mark.parametrize(
    ("small", "large", "said"),
    [((0.5, 0.01), (0.4, 0.01), True), ((0.5, 0.1), (0.4, 0.1), False), ((0.4, 0.01), (0.5, 0.01), False)],
)
def test_where_a_measurement_says_otherwise_it_counts(small, large, said):
    found = contradiction(rows(), [Measured(1000, *large), Measured(20, *small), Measured(7, 0.9, 0.0)])
    assert (found is not None) == said
    if found:
        assert "forecast has K = 1,000 above K = 20" in found and "The measurement counts." in found


def test_what_cannot_contradict():
    assert contradiction(rows(), [Measured(300, 0.5, 0.001), Measured(1000, 0.4, 0.001)]) is None  # level by forecast
    assert contradiction(rows(), [Measured(20, 0.5, None), Measured(1000, 0.4, None)]) is None
    assert contradiction(rows(), []) is None

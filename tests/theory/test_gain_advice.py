"""The sentence about K, over cases: free negatives, dear ones, shares or times that are not known."""

from dataclasses import replace

import pytest

from negwise.records import GainShare, QueryDifference
from negwise.theory.gain_advice import Compared, advice, contradiction

KS = (1, 4, 20, 100, 300, 1000)
SHARES = (0.0, 0.2, 0.65, 0.91, 0.97, 1.0)


def rows(seconds=None, shares=SHARES, metric="ndcg@10"):
    """``seconds(k)`` of a step; None where it is not known."""
    times = [None if seconds is None else seconds(k) for k in KS]
    return [GainShare(k, metric, share, seconds=time) for k, share, time in zip(KS, shares, times, strict=True)]


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        (rows(lambda k: 1 + 1e-5 * k), "K = 100 has about nine tenths of the gain of K = 1,000, and a step"),
        (rows(lambda k: 1 + 1e-5 * k), "takes 99% of the time. Take K = 1,000."),
        (rows(lambda k: 1 + 0.002 * k), "Each negative costs time. K = 100 has about nine tenths"),
        (rows(lambda k: 1 + 0.002 * k), "takes 40% of the time. Take K = 100."),
        (rows(lambda k: 0.1 + k, (0.0, 0.8, 0.85, 0.95, 0.99, 1.0)), "K = 4 has about eight tenths"),
        (
            rows(lambda _: 1.0, (0.0, 0.1, 0.2, 0.4, 0.6, 1.0)),
            "nearly free here, and the gain grows up to the largest K. Take",
        ),
        (
            rows(lambda k: k, (0.0, 0.1, 0.2, 0.3, 0.4, 1.0)),
            "costs time, and the gain grows up to the largest K. Take K = 1,000.",
        ),
        (rows(), "time of a step at each K was not measured. Take the largest K that does not slow your steps down."),
        (rows(lambda _: 1.0, [None] * 6), "not known for ndcg@10 here. A step with K = 1,000 takes no longer than one"),
        (rows(lambda k: 1 + 5e-5 * k, [None] * 6), "A step with K = 1,000 takes 1.05 times as long as one with K = 1,"),
        (rows(lambda _: 1.0, [None] * 6), "so negatives are nearly free. Leave K to the metric, the default."),
        (rows(lambda k: k, [None] * 6), "run the job again with --compare 1,4,20,100 and another --out."),
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
    assert advice(known).endswith("Take K = 100.")


def test_free_negatives_that_were_not_timed_to_the_end():
    found = advice(rows(lambda k: 1.0 if k <= 20 else None))
    assert "nearly free up to K = 20, the largest K whose step was timed here." in found
    assert found.endswith("If a step with it is about as fast, take K = 100.")


def test_free_negatives_up_to_a_k_that_is_enough():
    found = advice(rows(lambda k: 1.0 if k <= 300 else None, (0.0, 0.2, 0.4, 0.6, 0.95, 1.0)))
    assert found == (
        "Negatives are nearly free up to K = 300, which has nearly all of the gain of K = 1,000. Take K = 300."
    )


def test_the_metric_is_called_as_asked():
    assert "not known for HR@5 here" in advice(rows(None, [None] * 6, "hit@5"), "HR@5")


def test_a_time_that_was_not_measured_is_an_about():
    near = [replace(row, interpolated=row.k == 100) for row in rows(lambda k: 1 + 1e-5 * k)]
    assert "a step takes about 99% of the time" in advice(near)


def test_a_gain_that_grows_beyond_what_was_timed():
    known = rows(lambda k: 1 + k if k <= 20 else None, (0.0, 0.1, 0.5, 0.7, 0.9, 1.0))
    assert advice(known).endswith("the gain grows up to the largest K whose step was timed. Take K = 20.")


@pytest.mark.parametrize(
    ("seconds", "k", "says"),
    [
        # what the forecast says to take is what the model has
        (lambda k: 1 + 0.002 * k, 100, "K = 100 has about nine tenths of the gain of K = 1,000, and a step takes 40%"),
        (lambda k: 1 + 0.002 * k, 100, "of the time. Keep K = 100."),
        # a little more for free is no reason to train again; a clear gain is
        (lambda k: 1 + 1e-5 * k, 300, "K = 300 has nearly all of the gain of K = 1,000, and a step takes 99% of the"),
        (lambda k: 1 + 1e-5 * k, 300, "Keep K = 300."),
        (lambda k: 1 + 1e-5 * k, 20, "Take K = 1,000: type --k 1000 and another --out."),
        # as good, but dear
        (lambda k: 1 + 0.02 * k, 300, "Take K = 100: type --k 100 and another --out."),
        # the steps of the larger ones were not timed
        (lambda k: 1.0 if k <= 20 else None, 300, "K = 300 has nearly all of the gain of K = 1,000. Keep K = 300."),
        (lambda k: 1.0 if k <= 20 else None, 4, "fast, take K = 100: type --k 100 and another --out."),
    ],
)
def test_the_models_own_k_is_kept_where_nothing_is_clearly_better(seconds, k, says):
    assert says in advice(rows(seconds), k=float(k))


def test_the_models_own_k_need_not_be_compared():
    assert "--compare 1,4,100 and" in advice(rows(lambda k: k, [None] * 6), k=20.0)


def compared(k, ahead, reach=0.01):
    """Another K that the model is ahead of by ``ahead``, with a 95% interval of ``reach`` to both sides."""
    return Compared(k, QueryDifference("ndcg@10", ahead, reach / 1.96, ahead - reach, ahead + reach, 500))


NEARLY_FREE = rows(lambda k: 1 + 1e-5 * k)  # whose forecast is: take K = 1,000
UNKNOWN = rows(lambda k: k, [None] * 6)


@pytest.mark.parametrize(
    ("shares", "others", "says"),
    [
        # what was trained for the same time and is better is what to take
        (NEARLY_FREE, [compared(1, -0.1), compared(4, -0.05)], "is better than the model's K = 374. Take K = 1."),
        (NEARLY_FREE, [compared(1, 0.1), compared(1000, -0.1)], "Take K = 1,000."),
        (UNKNOWN, [compared(1, -0.1)], "K = 1 was trained here for the same time and is better"),
        # what the forecast says to take was trained, and brought nothing
        (NEARLY_FREE, [compared(1000, 0.1)], "is worse than the model's K = 374. Keep K = 374."),
        (NEARLY_FREE, [compared(1000, 0.001)], "is level with the model's K = 374. Keep K = 374."),
        # a larger K is behind where the forecast has it ahead
        (rows(lambda _: 1.0, (0, 0.1, 0.2, 0.3, 0.4, 1.0)), [compared(600, 0.1)], "none is better than the model's K"),
        # there is no forecast: what was compared is not to be compared again
        (UNKNOWN, [compared(1, 0.1), compared(4, 0.0), compared(20, 0.0)], "K = 1, 4 and 20 were trained here for"),
        (UNKNOWN, [compared(1, 0.1)], "K = 1 was trained here for the same time, and none is better than the model's"),
    ],
)
def test_advice_yields_to_what_was_measured(shares, others, says):
    found = advice(shares, k=374.0, compared=others)
    assert says in found and "run the job again" not in found


def test_measurements_that_agree_leave_the_forecast_alone():
    others = [compared(1, 0.2), compared(20, 0.1)]
    assert advice(NEARLY_FREE, k=374.0, compared=others) == advice(NEARLY_FREE)


@pytest.mark.parametrize(
    ("other", "smaller"),
    [(compared(1, -0.1), 1), (compared(20, -0.1), 20), (compared(1, 0.1), None), (compared(1, -0.1, 0.2), None)],
)
def test_where_a_measurement_says_otherwise_it_counts(other, smaller):
    found = contradiction(rows(), 374.0, [compared(4, 0.0), other])
    assert (found is not None) == (smaller is not None)
    if smaller:
        assert found == (
            f"The forecast has K = 374 above K = {smaller}. Measured on this data, K = {smaller} is ahead by 0.1000 "
            "(95% interval 0.0900 to 0.1100, 500 queries). The measurement counts."
        )


def test_a_larger_k_that_is_behind_contradicts_too():
    assert "Measured on this data, K = 20 is ahead" in contradiction(rows(), 20.0, [compared(1000, 0.1)])


def test_what_cannot_contradict():
    assert contradiction(rows(), 374.0, [compared(300, -0.1)]) is None  # level by forecast
    assert contradiction(rows(), 20.0, [compared(1000, -0.1)]) is None  # as forecast
    assert contradiction(rows(), 20.0, [compared(5000, 0.1)]) is None  # of which there is no forecast
    one_query = QueryDifference("ndcg@10", -0.5, None, None, None, 1)
    assert contradiction(rows(), 374.0, [Compared(1, one_query)]) is None
    assert contradiction(UNKNOWN, 374.0, [compared(1, -0.1)]) is None
    assert contradiction(rows(), 374.0, []) is None

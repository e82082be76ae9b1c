"""Why K was so large, in words: every reason that the rule itself gives has a sentence."""

import pytest

from negwise.protocols import VALIDATION_KS, Observation
from negwise.records import RunLog, StepRecord
from negwise.report.k_in_words import format_k, k_over_training, metric_reason, reason_in_words
from negwise.schedule import OnlineK


def reason_of(rule, **seen):
    """What ``rule`` says of K after one step."""
    first, state = rule.update(Observation(0, 100), rule.init())
    return rule.update(Observation(1, 100, k=first, **seen), state)[1]["reason"]


GOOD = {"wins": 900, "pairs": 900, "hits": 95, "rows": 100}
MEMORISED = tuple(0.5 if k <= 1 else 0.01 for k in VALIDATION_KS)
HEALTHY = tuple(1 / (1 + k / 50) for k in VALIDATION_KS)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (reason_of(OnlineK(0.3), wins=500, pairs=900, hits=30, rows=100), "all its negatives in 30% of the rows."),
        (reason_of(OnlineK(metric="hit@5", candidates=500), **GOOD), None),
        (reason_of(OnlineK(0.3, max_k=3), **GOOD), "the largest K allowed"),
        (
            reason_of(OnlineK(0.3, metric="hit@5", candidates=3), **GOOD),
            "HR@5 asks for 2, so K grew no further.",
        ),
        (reason_of(OnlineK(0.3, min_k=50), wins=1, pairs=900, hits=1, rows=100), "at its floor, 50"),
        (reason_of(OnlineK(0.3), val_reliability=MEMORISED, **GOOD), "held K back: the model ranked its training data"),
        (reason_of(OnlineK(0.3), val_reliability=HEALTHY, **GOOD), "all its negatives in 30% of the rows."),
        ("bounded by the validation ranks", "The last evaluation held K back."),
        (OnlineK().update(Observation(0, 100), OnlineK().init())[1]["reason"], "too short for K to move"),
        ("something new", "What set K: something new."),
    ],
)
def test_every_reason_has_a_sentence(reason, words):
    text = reason_in_words(reason, "online")
    assert (words or "") in text and text.endswith(".")
    assert reason == "something new" or not text.startswith("What set K")


def test_a_rule_that_gives_no_reason():
    assert reason_in_words(None, "100") == "K was typed."
    assert reason_in_words(None, "warm:20") == "K follows the rule warm:20."


def test_why_k_for_the_metric_was_so_large():
    assert metric_reason(752, "ndcg@10", 3416.0) == "nDCG@10 among 3,416 candidates asks for 752."
    assert metric_reason(64, "auc", 3416.0) == "AUC among 3,416 candidates asks for 64."
    assert metric_reason(100, "ndcg@10", 3416.0, 3415.0).endswith(
        "asks for 752. K is what the time allows, or what fits into memory."
    )
    assert metric_reason(20, "ndcg@10", 21.0, 20.0) == "These are all the negatives that a row has."  # of 64
    assert metric_reason(100, "ndcg@10", None) == "nDCG@10 asks for 100."


def test_k_from_the_first_step_to_the_last():
    steps = tuple(StepRecord(step, k=k, k_reason=f"r{step}") for step, k in ((1, 9.0), (2, 40.2), (3, 1376.4)))
    found = k_over_training(RunLog(steps=steps))
    assert (found.text, found.reason) == ("K = 9 → 1,376", "r3")
    assert k_over_training(RunLog(steps=steps[:1])).text == "K = 9"
    assert k_over_training(RunLog()) is k_over_training(None) is None
    assert (format_k(4.26), format_k(12.6), format_k(3.0)) == ("4.3", "13", "3")

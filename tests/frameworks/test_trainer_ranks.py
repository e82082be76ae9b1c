"""Two ranks are one, for each trainer of Hugging Face; one world of two processes serves them all."""

import pytest
import trainer_ranks
from two_processes import run_on_two

from negwise.draws import Key, counts

pytestmark = pytest.mark.filterwarnings("ignore:K is .* negatives to draw from")

TIES = ("win_rate", "eval_auc", "eval_auc_se")


def assert_same(one, two, rel):
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert set(a) == set(b)
        for name in a:
            assert a[name] == pytest.approx(b[name], rel=10 * rel if name == "grad_norm" else rel), (name, a, b)


def test_two_ranks_are_one(tiny_bert, tmp_path):
    _, one = trainer_ranks.train(tiny_bert, tmp_path / "one", 1)
    two = run_on_two("trainer_ranks.py", tmp_path / "two.json", tiny_bert)
    evals = [[entry for entry in logs["sentences"] if "eval_last_auc" in entry] for logs in (one, two)]
    # sentence-transformers leaves out what does not fill a batch on each of several ranks.
    assert [entry["eval_last_auc_queries"] for entry in evals[0]] == [trainer_ranks.LAST] * 3
    assert [entry["eval_last_auc_queries"] for entry in evals[1]] == [64] * 3
    rest = [[entry for entry in logs["sentences"] if "eval_last_auc" not in entry] for logs in (one, two)]
    assert len(rest[0]) == 16
    assert_same(*rest, rel=2e-3)
    assert len(one["cached"]) == 4 and {entry["k"] for entry in one["cached"]} == {11.0}
    assert_same(one["cached"], two["cached"], rel=2e-3)
    # The Trainer repeats rows to fill the last batches up; they do not count.
    assert len(one["scores"]) == 23 and one["scores"][-1]["eval_auc_queries"] == trainer_ranks.LAST
    assert_same(one["scores"], two["scores"], rel=1e-4)
    for a, b in zip(one["whole"], two["whole"], strict=True):
        assert set(a) == set(b)
        for name in a:  # sigmoids of a new model nearly tie: a pair may be won here and half won there
            assert a[name] == pytest.approx(b[name], **{"abs": 0.03} if name in TIES else {"rel": 1e-2}), (name, a, b)
    for logs in (one, two):
        steps = [entry["k_used"] for entry in logs["drawn"] if "k_used" in entry]
        assert steps == [counts(2.5, 16, Key(42, step)).mean() for step in range(4)]

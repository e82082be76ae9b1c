"""What a model card says of quality and of K: intervals that can be, and reasons that are true."""

import re
import shutil

import pytest
from scipy.stats import binomtest

import negwise as nw
from negwise.inference.model_card import quality, why_k
from negwise.records import ArmResult, ModelRecord, Outcome, Results, Scores, SeedResult, write_record

RECORD = ModelRecord("siamese-cnn", "pairs", {}, {}, {}, 1, "hit@5", "20")


def lines_of(metrics, queries=17, auc=0.9, auc_se=0.1):
    """Each metric's line of the card."""
    lines = quality(RECORD, Outcome(Scores(auc, auc_se, queries, 100, metrics)))[2:]
    return {line.split()[1]: line for line in lines}


@pytest.mark.parametrize("hits", [0, 1, 15, 17])
def test_a_share_of_few_queries_has_an_interval_that_can_be(hits):
    said = lines_of({"hit@5": hits / 17, "hit@5_se": 0.08})["hit@5"]
    expected = binomtest(hits, 17).proportion_ci(0.9, method="wilson")
    assert f"90% interval {expected.low:.4f} .. {expected.high:.4f} (the metric that counted)" in said


def test_other_metrics_stay_between_0_and_1_and_say_where_there_is_no_interval():
    metrics = {"ndcg@10": 0.98, "ndcg@10_se": 0.05, "ndcg@5": 1.0, "ndcg@5_se": 0.0, "mrr": 0.5, "mrr_se": None}
    found = lines_of(metrics | {"auc_pooled": 0.7, "auc_query": 0.8, "rr": 0.4})
    assert set(found) == {"auc", "ndcg@10", "ndcg@5", "mrr"}  # what only developers know is left out
    bounds = [float(one) for line in found.values() for one in re.findall(r"\d\.\d+", line.split("interval")[1])]
    assert len(bounds) == 4 and min(bounds) >= 0 and max(bounds) == 1
    assert found["ndcg@5"].endswith("1.0000, no interval: all queries score the same")
    assert found["mrr"].endswith("no interval: the standard error is not known")


def test_a_number_was_asked_for_and_a_job_says_how_it_came_to_it(world, tmp_path):
    job = tmp_path / "job"
    for name in ("siamese-cnn", "lstur"):
        shutil.copytree(world / "runs" / name, job / name)
    (job / "job.json").write_text("{}")

    def reason(name, role, uses_pilot):
        arms = [
            ArmResult(one, "5", 5.0, role, uses_pilot, 0.1, (), (SeedResult(0, one, "done"),))
            for one in ("siamese-cnn", "lstur")
        ]
        write_record(job / "results.json", Results("run", tuple(arms), ("auc",), chosen="siamese-cnn", model=name))
        model = nw.load(job)
        assert nw.load(job / name).outcome == model.outcome  # the run knows its job
        return why_k(model.record, model.outcome)[-1]

    assert reason("siamese-cnn", "fixed K*", True) == (
        "- Why: the run was asked for this number; it follows from the paper's estimate of K*, and was best on "
        "validation."
    )
    assert reason("lstur", "K=1", False).endswith("this number; it is one of those that a job tried.")
    assert reason("lstur", "model", False).endswith("asked for this number.")
    alone = nw.load(world / "runs" / "siamese-cnn")
    assert why_k(alone.record, alone.outcome)[-1] == "- Why: the run was asked for this number."
    assert why_k(RECORD, Outcome())[-1] == "- Why: the run was asked for this number."

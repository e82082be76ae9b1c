"""K that follows from the data or the model: ``--k metric`` and ``--k online`` through real runs."""

import math

import numpy as np
import pytest
from task_world import make_data, text_pairs, write_csv

import negwise as nw
from negwise.errors import InputError
from negwise.records import read_run
from negwise.tasks import query_candidates

TINY = {
    "model": "siamese-cnn", "steps": 12, "batch_size": 16, "eval_every": 6, "pool": 64,
    "settings": {"hidden": 8, "embedding": 8, "pooling": 8}, "device": "cpu", "threads": 1,
}  # fmt: skip


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    return write_csv(tmp_path / "pairs.csv", text_pairs(120))


def test_k_for_the_metric_is_that_of_the_candidates(pairs, tmp_path):
    nw.train(pairs, k="metric", metric="hit@2", out=tmp_path / "run", **TINY)
    assert {record.k for record in read_run(tmp_path / "run").steps} == {64}  # validation ranks among 12, M / n_w is 6


def test_online_k_starts_and_says_why(pairs, tmp_path):
    nw.train(pairs, k="online:0.25", metric="auc", out=tmp_path / "run", **TINY)
    steps = read_run(tmp_path / "run").steps
    assert [record.k for record in steps[:8]] == [3.0] * 8  # nothing is seen before the lag is over
    assert steps[0].k_reason == "nothing seen yet" and steps[-1].k_reason.startswith(("P(K) held at 0.25", "bounded"))
    assert all(0 <= record.hit_rate <= 1 for record in steps)
    assert steps[-1].k_asked > 0


def test_online_k_never_asks_for_more_than_there_is(pairs, tmp_path):
    nw.train(pairs, k="online:0.01", metric="auc", negatives="in-batch", out=tmp_path / "run", **TINY)
    steps = read_run(tmp_path / "run").steps
    assert {record.k for record in steps[:8]} == {15.0} and steps[0].k_reason == "bounded by max_k, 15"


def test_a_run_with_online_k_has_a_page(pairs, tmp_path):
    from negwise.report.write_report import write_report

    nw.train(pairs, k="online", metric="hit@2", out=tmp_path / "run", **TINY)
    text = write_report([tmp_path / "run"]).read_text()
    assert "K = online" in text and "P(K) held at 0.1" in text


@pytest.mark.parametrize("negatives", ["hardest", "uniform+hardest"])
def test_negatives_that_are_not_random_do_not_tell_k(pairs, tmp_path, negatives):
    with pytest.raises(InputError, match=r"k: got online, but hardest negatives.*Type a number, as --k 100"):
        nw.train(pairs, k="online", negatives=negatives, out=tmp_path / "run", **TINY)


def test_given_negatives_alone_do_not_tell_k(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    data = write_csv(tmp_path / "mined.csv", text_pairs(120, negatives=2))
    with pytest.raises(InputError, match=r"k: got online, but given negatives.*Type a number, as --k 100"):
        nw.train(data, k="online", negatives="given", out=tmp_path / "run", **TINY)


@pytest.mark.slow
def test_a_sweep_takes_rules_that_set_k_while_they_train(pairs, tmp_path):
    result = nw.sweep(pairs, k=["online", "all", "4"], out=tmp_path / "sweep", seeds=1, steps=4, batch_size=16, jobs=1)
    by_name = {arm.name: arm for arm in result.record.arms}
    assert all(arm.done for arm in by_name.values())
    assert by_name["online"].k == pytest.approx(1 / 0.2 - 1)  # nothing is seen before the lag is over
    assert by_name["all"].k > 50
    assert "online" in (tmp_path / "sweep" / "report.html").read_text()


@pytest.mark.parametrize("kind", ["impressions", "sequences", "pairs"])
def test_candidates_are_those_that_validation_ranks(tmp_path, kind):
    data = make_data(kind, tmp_path)
    found = query_candidates(data)
    if kind == "impressions":
        sizes = [len(data.impressions[group]) for group in set(data.val.groups.tolist())]
        assert found == round(np.mean(sizes)) == 8
    else:
        assert found == len(range(*data.val.candidates)) and math.isfinite(found)

"""A small job that is really trained: baselines and scores are those of its own model, and nothing is done twice."""

import json
import random
import time
from dataclasses import replace

import pytest

from negwise import metrics, stages
from negwise.jobs.answer_facts import _compared, corpus_seconds
from negwise.jobs.main_job import run_job
from negwise.metrics.model_ranking import rank_positives
from negwise.records import JobRecord, RunConfig, decode, read_record, read_result
from negwise.report import figure
from negwise.requests import RunRequest, TrainRequest
from negwise.stages import signs_of_life
from negwise.tasks import baselines, evaluation_splits, make_task
from negwise.training import load_weights, read_ranks


def write_pairs(file, n=150):
    """A left text shares half of its words with its right text."""
    dice = random.Random(0)
    rows = []
    for _ in range(n):
        words = [f"w{w}" for w in dice.sample(range(90), 6)]
        rows.append({"left": " ".join(words[:3]), "right": " ".join([*words[2:], f"w{dice.randrange(90)}"])})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.fixture
def request_(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    data = str(write_pairs(tmp_path / "pairs.jsonl"))
    return RunRequest(data=data, out=str(tmp_path / "job"), steps=6, batch_size=32, device="cpu")


def test_the_facts_are_those_of_the_model(request_, monkeypatch):
    said = []
    result = run_job(request_, log=said.append)
    record, folder = result.record, result.folder
    run = folder / record.model
    trained = make_task(decode(TrainRequest, read_record(RunConfig, run / "config.json").run, "run"))
    load_weights(trained.model, run)
    ranks = read_ranks(run)
    split = evaluation_splits(trained.data)["test"]
    (bm25,) = record.baselines
    theirs = metrics.evaluate(baselines.bm25_ranks(trained.data, split))
    assert bm25.scores.value("hit@5") == pytest.approx(theirs["hit@5"].value)
    assert bm25.differences[0].mean == pytest.approx(metrics.evaluate(ranks)["hit@5"].value - theirs["hit@5"].value)

    whole = baselines.FullRanking(split.examples, split.query_examples, 0, trained.data.n_items, split.exclusions)
    among_all = metrics.evaluate(rank_positives(trained.model, whole))
    assert record.corpus.candidates == trained.data.n_items
    assert record.corpus.scores.auc == pytest.approx(among_all.auc.value, abs=1e-6)
    assert record.candidates == pytest.approx(ranks.sizes.mean())
    assert record.shares[0].k == 1 and record.shares[-1].all
    trained_for = sum(seed.seconds for arm in record.arms for seed in arm.seeds)
    assert record.seconds > trained_for
    assert sum(record.seconds_by_use.values()) == pytest.approx(record.seconds, abs=0.01)
    assert record.seconds_by_use["training the model"] == pytest.approx(trained_for, abs=0.01)
    assert (folder / "report.html").exists() and any("needs no training" in line for line in said)

    plan = read_record(JobRecord, folder / "job.json").plan
    assert corpus_seconds(plan.times, trained) == pytest.approx(plan.times.evaluation * 150 / 15, rel=0.2)
    bare = replace(record, baselines=(), corpus=None)
    short = _compared(bare, folder, trained, {}, "cpu", plan, room=1e-6)
    assert short.corpus is None and short.baselines[0].scores == bm25.scores
    assert "was not ranked among all 150 texts" in short.caveats[-1]

    (page_cost,) = [stat for stat in result.answer.stats if stat.label == "cost, all of it"]
    assert page_cost.note in (folder / "report.html").read_text().replace("&#39;", "'")

    monkeypatch.setattr("negwise.jobs.answer_facts._compared", lambda *_: pytest.fail("ranked again"))
    again = run_job(request_, log=said.append)
    assert again.record == record
    assert again.to_dict()["answer"]["headline"] == result.answer.headline


def test_the_cost_begins_with_the_command_and_ends_with_the_figures(request_, monkeypatch):
    """Only the text of the page comes after it: the figures are drawn once, before the cost is taken."""
    drawn = {}
    svg = figure.Figure.svg

    def noted(self):
        found = svg(self)
        drawn.setdefault(self.name, time.monotonic())
        return found

    begun = []

    class Noted(stages.Stage):
        def __init__(self, what):
            super().__init__(what)
            begun.append(what)

    monkeypatch.setattr(stages, "Stage", Noted)
    monkeypatch.setattr(figure.Figure, "svg", noted)
    figure._drawn.cache_clear()
    began = time.monotonic()
    with signs_of_life(lambda _: None):
        time.sleep(0.1)  # as loading takes
        result = run_job(request_, log=lambda _: None)
    assert max(drawn.values()) - began - 0.05 <= result.record.seconds <= time.monotonic() - began
    assert len(drawn) > 3 and figure._drawn.cache_info()[:2] == (len(drawn), len(drawn))  # hits: those of the page
    last = ["ranking without training", "ranking among all 150 texts", "drawing the figures", "writing the page"]
    assert list(dict.fromkeys(begun))[-4:] == last  # what takes long after training gives signs of life


def test_other_k_come_with_their_k_and_their_seconds(request_):
    result = run_job(replace(request_, compare=("2",)), log=lambda _: None)
    other = next(one for one in result.record.baselines if one.trained)
    ended = read_result(result.folder / "runs/compare-2/seed-0")
    assert (other.k, other.seconds) == (2.0, ended.seconds)
    assert result.record.seconds_by_use["training other K to compare"] == pytest.approx(ended.seconds, abs=0.01)

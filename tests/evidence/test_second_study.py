"""The runner of the second study: its cells, label noise, and a tiny cell from end to end."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evidence import second_study as study
from negwise.metrics import Ranks
from negwise.metrics.per_query import query_values
from negwise.requests import TrainRequest
from negwise.tasks import make_task, with_recipe


def test_every_cell_is_there_once():
    for block in study.BLOCKS:
        cells = study.cells_of(block)
        assert len(set(cells)) == len(cells) > 0
        assert {cell.block for cell in cells} == {block}
    with pytest.raises(SystemExit, match="no such block"):
        study.cells_of("all")


def test_noise_replaces_its_share():
    ids = np.arange(100_000, dtype=np.int32) + 500
    found = study.replaced(ids, 0.2, (0, 400), np.random.default_rng(0))
    changed = found != ids
    assert found.dtype == ids.dtype and abs(changed.mean() - 0.2) < 0.005
    assert found[changed].min() >= 0 and found[changed].max() < 400
    assert np.array_equal(found, study.replaced(ids, 0.2, (0, 400), np.random.default_rng(0)))


def test_noise_leaves_validation_and_test_alone(tmp_path):
    path = tmp_path / "clicks.csv"
    rows = [f"u{user},i{(user * 7 + at) % 30},{at}" for user in range(40) for at in range(8)]
    path.write_text("\n".join(["user,item,time", *rows]) + "\n")
    for data, model in ((str(path), "bert4rec"), ("docs", "siamese-cnn")):
        request = TrainRequest(data=data, model=model, k="4", steps=2, body_words=10, evaluate_training=False)
        task = make_task(with_recipe(request))
        noisy = study.with_noise(task, 0.4, 3)
        before, after = (one.examples.batch(np.arange(30)) for one in (task, noisy))
        if model == "bert4rec":
            assert not bool((before[0].items == after[0].items).all())
        else:
            assert bool((before[0].items == after[0].items).all()) and not bool((before[1] == after[1]).all())
        assert noisy.splits is task.splits and noisy.data is task.data


@pytest.mark.slow
def test_a_cell_and_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(study.DATA, "clicks", {**study.DATA["clicks"], "queries": 100})
    cell = study.Cell("end-items", "clicks", "1", 10, 6, scale=2.0)
    found = study.train(cell, Path())
    assert [one["step"] for one in found["curves"]["val"]] == [0, 1, 2, 3, 4, 5, 6]
    assert len(found["curves"]["train"]) == 7  # a pilot is judged on training queries too
    ranks = Ranks(*(found[name] for name in study.RANKS))
    assert np.nanmean(query_values(ranks, "ndcg@10")) == pytest.approx(found["test"]["ndcg@10"], abs=1e-5)
    study.save(tmp_path / "a.npz", [found])
    (again,) = study.read(tmp_path / "a.npz")
    assert study.cell_of(again) == cell and again["curves"] == found["curves"]
    assert study.cell_of(again) != replace(cell, seed=11)

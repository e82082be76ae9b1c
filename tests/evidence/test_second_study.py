"""The runner of the second study: its cells, label noise, and a tiny cell from end to end."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from evidence import second_study as study
from evidence import second_tables as tables
from evidence.sizes import click_histories, simulated
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


def test_the_cells_of_the_plan():
    rates = {(cell.task, cell.k): [] for cell in study.cells_of("rates")}
    for cell in study.cells_of("rates"):
        rates[cell.task, cell.k].append(cell.scale)
    assert all(sorted(scales) == [0.25, 0.5, 1, 2, 4] for scales in rates.values())
    models = {study.DATA[cell.task]["model"] for cell in study.cells_of("models")}
    assert len(models) == 7
    drawn = {(cell.negatives, cell.correct) for cell in study.cells_of("negatives")}
    assert drawn == {("popularity", False), ("popularity", True)}
    assert min(cell.seed for block in study.BLOCKS for cell in study.cells_of(block)) >= 10


def test_histories_are_the_longest_of_each_user(tmp_path):
    lines = ["1\tu1\tnow\ta b\tc-1", "2\tu1\tlater\ta b c\td-0", "3\tu2\tnow\t\td-0"]
    (tmp_path / "behaviors.tsv").write_text("\n".join(lines) + "\n")
    found = click_histories(tmp_path, tmp_path / "out.csv").read_text().split()
    assert found == ["user,item,time", "u1,a,0", "u1,b,1", "u1,c,2"]


def test_simulated_users_take_what_they_like(tmp_path):
    """Items of the same users are alike: tastes of two halves of a user's items correlate, of two users they do not."""
    path = simulated(400, tmp_path / "out.csv", users=300, length=20)
    rows = [line.split(",") for line in path.read_text().split()[1:]]
    assert len(rows) == 6000 and len({item for _, item, _ in rows}) <= 400
    kinds = np.random.default_rng([0, 400]).normal(size=(700, 8))[300:]
    taken = kinds[[int(item[1:]) for _, item, _ in rows]].reshape(300, 20, 8)
    first, second = taken[:, :10].mean(1), taken[:, 10:].mean(1)
    assert (first * second).sum(1).mean() > 10 * abs((first * np.roll(second, 1, 0)).sum(1).mean())


@pytest.mark.slow
def test_a_cell_of_a_made_catalogue_with_popular_negatives(tmp_path, monkeypatch):
    """Data that is made first, then trained on for a few steps; corrected and not they differ."""
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(study, "simulated", lambda items, out: simulated(items, out, users=60, length=12))
    monkeypatch.setitem(
        study.DATA,
        "simulated-1000",
        {**study.DATA["simulated-1000"], "settings": {"heads": 2, "head_dim": 8, "layers": 1}},
    )
    cell = study.Cell("negatives", "simulated-1000", "4", 10, 4, negatives="popularity")
    study.make_data([cell], tmp_path)
    plain, corrected = (study.train(replace(cell, correct=correct), tmp_path) for correct in (False, True))
    assert len(plain["above"]) == 60 and plain["curves"]["val"] != corrected["curves"]["val"]


def known(places, block="rules", task="items", **more):
    """Records of three seeds and 40 queries: K and how many of 100 candidates are above every positive."""
    found = []
    for k, above in places.items():
        for seed in range(3):
            ones, jitter = np.ones(40, np.int32), np.random.default_rng([seed, len(k)]).integers(-1, 2, 40)
            ranks = {"above": (above + jitter).astype(np.int32), "tied": ones, "positives": ones, "sizes": 101 * ones}
            cell = asdict(study.Cell(block, task, k, seed, 100))
            curves = {"val": [{"step": 100, "ndcg@10": 0.5}]}
            found.append({**cell, "metric": "ndcg@10", "best": 95, "curves": curves, **ranks, **more})
    return found


def rows(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


def test_what_is_lost_in_a_known_world():
    """AUC .5, .7 and .9 at K = 1, metric and 100: the rule loses half of the gain."""
    found = rows(tables.table_of("rules", known({"1": 50, "metric": 30, "100": 10})))
    auc = {row[3]: row for row in found if row[1] == "AUC"}
    assert auc["metric"][2] == "100" and auc["100"][4] == "0%" and auc["1"][4] == "100%"
    assert int(auc["metric"][4][:-1]) == pytest.approx(50, abs=2)


def test_the_end_of_a_known_world():
    one = [*known({"1": 50}, "end-items", best=90), *known({"20": 10}, "end-items")]
    (first, second, *_) = rows(tables.table_of("end-items", one))
    assert (first[5], second[5]) == ("3 of 3", "0 of 3")
    assert float(second[4].split()[0]) == pytest.approx(0.4, abs=0.02)


def test_rates_at_the_edge_are_named():
    found = []
    for scale, score in ((0.5, 0.1), (1.0, 0.3), (2.0, 0.2)):
        found += known({"1": 50}, "rates", scale=scale, curves={"val": [{"ndcg@10": score}]})
        found += known({"20": 50}, "rates", scale=scale, curves={"val": [{"ndcg@10": scale}]})
    assert [row[2:] for row in rows(tables.table_of("rates", found))] == [
        ["1", "1", "0.3000", "inside"],
        ["20", "2", "2.0000", "edge"],
    ]


def test_noise_moves_the_best_k():
    found = [
        *known({"1": 50, "20": 30, "100": 10}, "noise"),
        *known({"1": 50, "20": 10, "100": 30}, "noise", noise=0.2),
    ]
    assert [(row[1], row[3]) for row in rows(tables.table_of("noise", found)) if row[2] == "AUC"] == [
        ("0%", "100"),
        ("20%", "20"),
    ]

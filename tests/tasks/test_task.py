"""A task from a request: every choice of negatives and loss trains, wrong ones are refused before a run begins."""

import math

import numpy as np
import pytest
import torch
from task_world import PAIRS, interactions, make_data, text_pairs, write_csv

import negwise as nw
from negwise import datasets
from negwise.errors import InputError
from negwise.losses import info_nce
from negwise.records import read_run
from negwise.requests import TrainRequest
from negwise.tasks import evaluation_splits, make_loss, make_task

TINY = {
    "model": "siamese-cnn", "k": 3, "steps": 2, "batch_size": 8, "eval_every": 2, "queries": 6, "pool": 32,
    "settings": {"hidden": 8, "embedding": 8, "pooling": 8, "dropout": 0.0}, "device": "cpu", "threads": 1,
}  # fmt: skip


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    return write_csv(tmp_path / "pairs.csv", text_pairs())


@pytest.fixture
def mined(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    return write_csv(tmp_path / "mined.csv", text_pairs(negatives=2))


def losses(out):
    return [record.loss for record in read_run(out).steps]


@pytest.mark.parametrize(
    "negatives",
    [None, "pool", "uniform", "popularity", "in-batch", "queue", "hardest", "hardest:8+uniform", "pool:8+2*queue"],
)
def test_every_choice_of_negatives_trains(pairs, tmp_path, negatives):
    nw.train(pairs, out=tmp_path / "run", negatives=negatives, **TINY)
    first, second = losses(tmp_path / "run")
    assert math.isfinite(first) and math.isfinite(second)
    assert read_run(tmp_path / "run").steps[1].k_used == 3


@pytest.mark.parametrize("negatives", [None, "given", "queue", "hardest"])
def test_negatives_that_came_with_the_data_train_with_every_fill(mined, tmp_path, negatives):
    nw.train(mined, out=tmp_path / "run", negatives=negatives, **TINY | {"k": 1 if negatives == "given" else 3})
    for record in read_run(tmp_path / "run").steps:
        assert math.isfinite(record.loss)
    assert (record.given_win_rate is None) == (negatives == "given")  # there, nothing is drawn beside them


LOSSES = ["info-nce", "bpr", "bce", "gbce", "gbce:t=0.5", "gbce:0.9", "decoupled", "debiased", "debiased:tau_plus=0.2"]


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_trains(pairs, tmp_path, loss):
    nw.train(pairs, out=tmp_path / "run", loss=loss, **TINY)
    assert all(map(math.isfinite, losses(tmp_path / "run")))


def test_losses_differ_on_the_same_first_batch(pairs, tmp_path):
    first = {}
    for at, loss in enumerate(LOSSES):
        nw.train(pairs, out=tmp_path / str(at), loss=loss, **TINY | {"steps": 1, "eval_every": 1})
        first[loss] = losses(tmp_path / str(at))[0]
    assert len(set(first.values())) == len(LOSSES)


@pytest.mark.parametrize("negatives", [None, "uniform", "popularity:0.75", "in-batch", "queue", "uniform+popularity"])
def test_a_correction_trains_with_every_sampler_that_has_one(pairs, tmp_path, negatives):
    nw.train(pairs, out=tmp_path / "run", negatives=negatives, correct=True, **TINY)
    assert all(map(math.isfinite, losses(tmp_path / "run")))


def test_a_correction_changes_the_loss(pairs, tmp_path):
    for correct in (True, False):
        nw.train(pairs, out=tmp_path / str(correct), correct=correct, **TINY)
    assert losses(tmp_path / "True")[0] != losses(tmp_path / "False")[0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "bpr"}, r"corrects InfoNCE, but the loss is bpr\. Type --loss info-nce, or leave --correct out"),
        ({"loss": "gbce:t=0.5"}, "the loss is gbce:t=0.5. Type --loss info-nce"),
        ({"negatives": "hardest"}, "hardest has none. Type other --negatives, as uniform, .* or leave --correct out"),
        ({"negatives": "uniform+hardest:8"}, "hardest has none"),
    ],
)
def test_a_correction_that_there_is_not_is_refused_before_the_run_begins(pairs, tmp_path, options, said):
    with pytest.raises(InputError, match=said):
        nw.train(pairs, out=tmp_path / "run", correct=True, **options, **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("negatives", "said"),
    [(None, "were not drawn. Leave --correct out"), ("uniform", "were not drawn"), ("given", "given has none")],
)
def test_what_nobody_drew_cannot_be_corrected(mined, tmp_path, negatives, said):
    with pytest.raises(InputError, match=said):
        nw.train(mined, out=tmp_path / "run", correct=True, negatives=negatives, **TINY)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        ("triplet", "got 'triplet', expected one of info-nce, bpr, bce, gbce, decoupled, debiased"),
        ("gbce:beta=1", "got 'beta=1' in 'gbce:beta=1'; gbce takes t"),
        ("bpr:0.5", "got '0.5' in 'bpr:0.5'; bpr takes no option"),
        ("info-nce:t=1", "info-nce takes no option"),
        ("gbce:t=2", "t=2.0; expected a share from 0"),
        ("debiased:1", "tau_plus=1.0; expected a share"),
    ],
)
def test_a_loss_or_an_option_that_there_is_not_is_refused_before_the_run_begins(pairs, tmp_path, loss, said):
    with pytest.raises(InputError, match=said):
        nw.train(pairs, out=tmp_path / "run", loss=loss, **TINY)
    assert not (tmp_path / "run").exists()


def softplus(x):
    return math.log1p(math.exp(x))


def by_hand(loss, positive, negatives):
    """One row, by the formula."""
    k = len(negatives)
    if loss == "bpr":
        return sum(softplus(n - positive) for n in negatives) / k
    if loss == "decoupled":
        return -positive + math.log(sum(map(math.exp, negatives)))
    beta = {"bce": 1.0, "gbce": 0.75 * (k / 40 - 1) + 1, "gbce:t=0.5": 0.5 * (k / 40 - 1) + 1}[loss]
    return (beta * softplus(-positive) + sum(map(softplus, negatives))) / (k + 1)


@pytest.mark.parametrize("name", ["bpr", "bce", "gbce", "gbce:t=0.5", "decoupled"])
def test_a_loss_on_scores_is_its_formula_and_gbce_knows_the_catalogue(name):
    made = torch.Generator().manual_seed(0)
    query, table = torch.randn(5, 4, generator=made), torch.randn(9, 4, generator=made)
    ids = torch.randint(0, 9, (5, 3), generator=made)
    found = make_loss(name, 41, None)(query, table[:5], table, ids=ids)
    rows = [
        by_hand(name, float(query[b] @ table[b]), [float(query[b] @ table[i]) for i in ids[b].tolist()])
        for b in range(5)
    ]
    assert float(found.loss) == pytest.approx(np.mean(rows), rel=1e-5)


def test_the_task_hands_the_size_of_the_catalogue_and_the_smallest_score_to_the_loss(pairs):
    def loss(text, **settings):
        options = TINY | {"k": "3", "settings": TINY["settings"] | settings}
        return make_task(TrainRequest(data=str(pairs), loss=text, **options)).loss

    assert dict(loss("gbce").options) == {"catalogue": PAIRS}
    assert dict(loss("gbce:0.3").options) == {"catalogue": PAIRS, "t": 0.3}
    assert dict(loss("debiased", temperature=0.05).options) == {"tau_plus": 0.1, "min_score": -20}
    assert loss("info-nce") is info_nce


@pytest.mark.parametrize("kind", ["pairs", "sequences", "impressions"])
def test_splits_to_evaluate_have_the_sizes_of_the_data(tmp_path, kind):
    """Queries are rows of a split, or its impressions; of training as many as of validation."""
    data = make_data(kind, tmp_path)
    queries = {}
    for name in ("train", "val", "test"):
        split = getattr(data, name)
        queries[name] = len(set(split.groups.tolist())) if kind == "impressions" else len(split)
    found = {name: len(split.query_examples) for name, split in evaluation_splits(data).items()}
    assert found == queries | {"train": queries["val"]}
    assert min(queries.values()) > 3
    fewer = evaluation_splits(data, max_queries=3)
    assert [len(split.query_examples) for split in fewer.values()] == [3, 3, 3]
    for name, split in fewer.items():
        assert set(split.query_examples.tolist()) <= set(range(len(getattr(data, name))))
        assert len(set(split.query_examples.tolist())) == 3


def test_a_task_without_training_queries(pairs):
    request = TrainRequest(data=str(pairs), evaluate_training=False, **TINY | {"k": "3"})
    assert set(make_task(request).splits) == {"val", "test"}


def test_data_and_model_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("NEGWISE_CACHE", str(tmp_path / "cache"))
    file = write_csv(tmp_path / "log.csv", interactions())
    for data, more, said in (
        (file, {"model": "siamese-cnn"}, "got the task pairs, but interactions data supports sequences"),
        ("clicks", {"model": "siamese-cnn"}, "simulated impressions, but siamese-cnn learns from pairs. Type --model"),
        (file, {"model": "bert4rec", "world": {"users": 9}}, "is no simulated world. Leave it out"),
    ):
        with pytest.raises(InputError, match=said):
            make_task(TrainRequest(data=str(data), **more))


def test_a_source_that_was_read_is_not_read_again(pairs):
    source = datasets.read(pairs)
    pairs.unlink()
    task = make_task(TrainRequest(data=str(pairs), **TINY | {"k": "3"}), source)
    assert task.data.n_items == PAIRS

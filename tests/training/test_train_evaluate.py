"""Evaluation against scikit-learn and a loop over queries."""

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score, roc_auc_score
from train_world import N_ITEMS, Dot, Mean, make_world

from negwise import metrics
from negwise.errors import InputError
from negwise.metrics import model_ranking
from negwise.metrics.model_ranking import FullRanking, ImpressionRanking, rank_positives, recommend, subset
from negwise.tasks import evaluate_model, evaluation_splits
from negwise.training.run_folder import read_ranks, write_ranks

MODELS = [Dot, Mean]


def scores(model, split, example):
    """Scores of all items for one example, alone."""
    with torch.no_grad():
        items = model.encode_candidates(torch.arange(N_ITEMS))
        query, positives, groups = split.examples.batch(np.array([example]))
        inputs = model.encode_queries(query, lambda ids: items[ids])
    return (items @ inputs[0]).numpy(), int(positives[0]), int(groups[0])


def expected(model, split, world):
    """(AUC, mean of nDCG@5, queries) query by query."""
    aucs, weights, ndcgs = [], [], []
    for example in split.query_examples:
        every, positive, group = scores(model, split, example)
        if world.impressions is None:
            left = np.setdiff1d(np.arange(N_ITEMS), np.setdiff1d(world.eval_exclusions[group], positive))
            labels, own = (left == positive).astype(int), every[left]
        else:
            labels, own = (
                world.labels[slice(*world.impressions.offsets[group : group + 2])],
                every[world.impressions[group]],
            )
        if 0 < labels.sum() < len(labels):
            aucs.append(roc_auc_score(labels, own))
            weights.append(labels.sum())
            ndcgs.append(ndcg_score([labels], [own], k=5))
    return np.average(aucs, weights=weights), np.mean(ndcgs), len(aucs)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_against_scikit_learn(kind, shown):
    world, model = make_world(shown=shown), kind(dropout=0.5)
    for name, split in evaluation_splits(world).items():
        summary = evaluate_model(model, split)
        model.eval()
        auc, ndcg, queries = expected(model, split, world)
        model.train()
        assert summary.auc.value == pytest.approx(auc, abs=1e-12), name
        assert summary["ndcg@5"].value == pytest.approx(ndcg, abs=1e-12), name
        assert summary.queries == queries == 40


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", MODELS)
def test_chunks_change_nothing(kind, shown, monkeypatch):
    model, split = kind(), evaluation_splits(make_world(shown=shown))["val"]
    whole = evaluate_model(model, split)
    monkeypatch.setattr(model_ranking, "CHUNK_QUERIES", 7)
    monkeypatch.setattr(model_ranking, "CHUNK_ITEMS", 9)
    assert evaluate_model(model, split).to_dict() == whole.to_dict()


def test_a_range_of_candidates():
    """Positives of a split are told apart from that split's candidates alone."""
    world, model = make_world(), Mean()
    inside = np.flatnonzero((world.val.positives >= 10) & (world.val.positives < 40))
    split = FullRanking(world.val, inside, 10, 40, world.eval_exclusions)
    summary = evaluate_model(model, split)
    aucs = []
    for example in inside:
        every, positive, group = scores(model, split, example)
        left = np.setdiff1d(np.arange(10, 40), np.setdiff1d(world.eval_exclusions[group], positive))
        aucs.append(roc_auc_score(left == positive, every[left]))
    assert summary.auc.value == pytest.approx(np.mean(aucs), abs=1e-12)


def test_each_candidate_is_encoded_once():
    world, model = make_world(shown=True), Mean()
    split = evaluation_splits(world)["val"]
    evaluate_model(model, split)
    wanted = set(np.concatenate([world.impressions[group] for group in split.groups]).tolist())
    wanted |= set(world.val.items[split.query_examples].flatten().tolist())
    assert model.encoded == [len(wanted)]


def test_training_is_judged_on_as_many_queries_as_validation():
    world = make_world(n=300)
    first, second = evaluation_splits(world), evaluation_splits(world)
    assert len(first["train"].query_examples) == len(first["val"].query_examples) == 40
    assert first["train"].query_examples.tolist() == second["train"].query_examples.tolist()
    assert first["train"].query_examples.tolist() != list(range(40))
    fewer = evaluation_splits(world, max_queries=10)
    assert [len(split.query_examples) for split in fewer.values()] == [10] * 3
    assert set(fewer["val"].query_examples) <= set(range(40))
    with pytest.raises(InputError, match="no standard error"):
        evaluation_splits(world, max_queries=1)


def test_a_group_is_one_query_however_many_its_clicks():
    world = make_world(shown=True)
    double = np.concatenate((world.val.groups, world.val.groups[:5]))
    parts = (world.val.items, world.val.mask, world.val.users, world.val.positives)
    more = type(world.val)(*(np.concatenate((part, part[:5])) for part in parts), double)
    split = evaluation_splits(
        type(world)(world.train, more, world.test, world.eval_exclusions, world.impressions, world.labels)
    )["val"]
    assert isinstance(split, ImpressionRanking) and len(split.query_examples) == 40
    assert evaluate_model(Dot(), split).to_dict() == evaluate_model(Dot(), evaluation_splits(world)["val"]).to_dict()


def test_leaves_the_model_as_it_was_and_may_be_ended():
    model, split = Mean(dropout=0.5), evaluation_splits(make_world())["val"]
    assert model.training
    assert evaluate_model(model, split).to_dict() == evaluate_model(model, split).to_dict()
    assert model.training

    def end():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rank_positives(model, split, between=end)
    assert model.training
    with pytest.raises(InputError, match="no query"):
        evaluate_model(model, subset(split, 0))


def test_low_precision_encodes_and_full_precision_ranks():
    model, split = Mean(), evaluation_splits(make_world())["val"]
    low = metrics.evaluate(rank_positives(model, split, autocast=lambda: torch.autocast("cpu", torch.bfloat16)))
    high = evaluate_model(model, split)
    assert low.auc.value == pytest.approx(high.auc.value, abs=0.05)
    assert low.to_dict() != high.to_dict()


def test_ranks_come_back_as_they_were_written(tmp_path):
    rng = np.random.default_rng(0)
    for most in (3, 70_000):
        ranks = metrics.Ranks(*(rng.integers(0, most, 50) for _ in range(4)))
        write_ranks(tmp_path, ranks)
        for name in ("above", "tied", "positives", "sizes"):
            assert (getattr(read_ranks(tmp_path), name) == getattr(ranks, name)).all()
    with pytest.raises(InputError, match="has ended"):
        read_ranks(tmp_path / "other")


def test_recommendations_against_a_loop():
    """Items seen are never recommended; coverage and popularity counted by hand."""
    world = make_world()
    model, split = Mean(dropout=0.0), evaluation_splits(world)["test"]
    popularity = np.arange(N_ITEMS)
    found = recommend(model, split, popularity, n=3)
    model.eval()
    shown, right = [], []
    for example in split.query_examples:
        values, positive, group = scores(model.eval(), split, example)
        seen = split.exclusions.ids[split.exclusions.offsets[group] : split.exclusions.offsets[group + 1]].tolist()
        allowed = [i for i in range(split.first, split.last) if i == positive or i not in seen]
        shown += sorted(allowed, key=lambda i, values=values: -values[i])[:3]
        right.append(positive)
    assert found["queries"] == len(split.query_examples)
    assert found["coverage"] == pytest.approx(len(set(shown)) / (split.last - split.first))
    assert found["popularity"] == pytest.approx(np.mean(shown))
    assert found["positives_popularity"] == pytest.approx(np.mean(right))
    assert recommend(model, split, popularity * 0, n=3)["popularity"] is None


def test_recommendations_among_what_was_shown():
    world = make_world(shown=True)
    model, split = Mean(dropout=0.0), evaluation_splits(world)["test"]
    found = recommend(model, split, np.arange(N_ITEMS), n=2)
    picked = []
    for example, group in zip(split.query_examples, split.groups, strict=True):
        values, _, _ = scores(model.eval(), split, example)
        there = split.impressions.ids[split.impressions.offsets[group] : split.impressions.offsets[group + 1]]
        picked += there[np.argsort(-values[there], kind="stable")[:2]].tolist()
    assert found["popularity"] == pytest.approx(np.mean(picked))
    assert found["coverage"] == pytest.approx(len(set(picked)) / len(split.candidates))
    bounds = [slice(split.impressions.offsets[group], split.impressions.offsets[group + 1]) for group in split.groups]
    places = [at for each in bounds for at in range(each.start, each.stop) if split.labels[at]]
    clicked = [int(split.impressions.ids[at]) for at in places]
    assert len(clicked) > found["queries"] == len(split.groups)  # every click counts, and a query once
    assert found["positives_popularity"] == pytest.approx(np.mean(clicked))

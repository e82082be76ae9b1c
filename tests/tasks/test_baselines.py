"""Baselines against loops: exactly the test split's queries and candidates, paired with the model query by query."""

import math
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from task_world import make_data, write_csv

from negwise import datasets, metrics
from negwise.errors import InputError
from negwise.metrics.model_ranking import subset
from negwise.tasks import baselines, evaluation_splits
from negwise.tasks.baselines import baselines_of, bm25_ranks, corpus_split, popularity_ranks, query_difference

METRICS = ("hit@5", "ndcg@10", "auc", "mrr", "hit@3")


def task_of(data, queries=None):
    return SimpleNamespace(data=data, splits=evaluation_splits(data, queries))


def ranks_by_loops(score, positives, candidates):
    """Above and tied of each positive; ``candidates`` are those of its query."""
    above = [sum(score(q, c) > score(q, p) for c in candidates[q]) for q, p in positives]
    tied = [sum(score(q, c) == score(q, p) for c in candidates[q]) for q, p in positives]
    return above, tied


@pytest.mark.parametrize("queries", [None, 7])
def test_popular_items_of_sequences(tmp_path, queries):
    data = make_data("sequences", tmp_path)
    task = task_of(data, queries)
    split = task.splits["test"]
    rows = [(n, split.examples.positives[at], split.examples.groups[at]) for n, at in enumerate(split.query_examples)]
    allowed = {n: [i for i in range(data.n_items) if i == p or i not in data.eval_exclusions[g]] for n, p, g in rows}
    above, tied = ranks_by_loops(lambda _, item: data.popularity[item], [(n, p) for n, p, _ in rows], allowed)
    found = popularity_ranks(data, split)
    assert (found.above.tolist(), found.tied.tolist()) == (above, tied)
    assert found.sizes.tolist() == [len(allowed[n]) for n, _, _ in rows]


def test_popular_items_of_impressions(tmp_path):
    data = make_data("impressions", tmp_path)
    clicks = Counter(data.train.positives.tolist())
    split = evaluation_splits(data)["test"]
    above, tied = [], []
    for group in split.groups:
        at = range(data.impressions.offsets[group], data.impressions.offsets[group + 1])
        shown = {n: data.impressions.ids[n] for n in at}
        for n in (n for n in at if data.labels[n] == 1):
            above.append(sum(clicks[item] > clicks[shown[n]] for item in shown.values()))
            tied.append(sum(clicks[item] == clicks[shown[n]] for item in shown.values()))
    found = popularity_ranks(data, split)
    assert (found.above.tolist(), found.tied.tolist()) == (above, tied)


def texts_of(n=80, seed=3):
    """Pairs that share words, some texts twice, of very different lengths."""
    dice = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        topic = dice.integers(0, 40, 4)
        right = [f"w{w}" for w in (*topic, *topic[:1], *dice.integers(0, 40, dice.integers(0, 12)))]
        rows.append({"query": " ".join(f"w{w}" for w in (*topic[:2], topic[0])), "pos": " ".join(right)})
    return rows


@pytest.fixture
def pairs(tmp_path):
    source = datasets.read(write_csv(tmp_path / "pairs.csv", texts_of()), cache=tmp_path / "cache")
    return datasets.prepare(source)


def bm25_by_loops(left, right):
    """BM25 of every left text with every right text, from the texts themselves."""
    documents = [Counter(text.split()) for text in right]
    lengths = [sum(words.values()) for words in documents]
    mean = sum(lengths) / len(lengths)
    having = Counter(word for words in documents for word in words)

    def score(query, at):
        total = 0.0
        for word in query.split():
            f = documents[at][word]
            idf = math.log(1 + (len(right) - having[word] + 0.5) / (having[word] + 0.5))
            total += idf * f * 2.2 / (f + 1.2 * (0.25 + 0.75 * lengths[at] / mean)) if f else 0.0
        return total

    return np.array([[score(query, at) for at in range(len(right))] for query in left])


@pytest.mark.parametrize(("whole", "block"), [(False, 1 << 22), (True, 1 << 22), (True, 150)])
def test_bm25_of_pairs(pairs, monkeypatch, whole, block):
    monkeypatch.setattr(baselines, "CHUNK_SCORES", block)
    split = corpus_split(task_of(pairs)) if whole else evaluation_splits(pairs)["test"]
    title, body = (pairs.texts.fields[name] for name in ("title", "body"))
    texts = [[field[n] for n in range(len(field))] for field in (title, body)]
    scores = np.round(bm25_by_loops(*texts), 9)  # sums in another order
    positives = [(p, p) for p in split.examples.positives[split.query_examples]]
    exclusions = dict(zip(split.examples.positives, split.examples.groups, strict=True))
    allowed = {
        p: [i for i in range(split.first, split.last) if i == p or i not in pairs.eval_exclusions[exclusions[p]]]
        for p, _ in positives
    }
    above, tied = ranks_by_loops(lambda q, item: scores[q, item], positives, allowed)
    found = bm25_ranks(pairs, split)
    assert (found.above.tolist(), found.tied.tolist()) == (above, tied)
    assert found.sizes.tolist() == [len(allowed[p]) for p, _ in positives]
    assert max(above) > 0 and (not whole or found.sizes.max() > pairs.n_items / 2)


def model_ranks(ranks, seed=0):
    """Ranks that a model might have on the same queries."""
    offsets = np.append(0, np.cumsum(ranks.sizes))
    labels = np.zeros(offsets[-1], int)
    for start, positives in zip(offsets, ranks.positives, strict=False):
        labels[start : start + positives] = 1
    return metrics.rank(np.random.default_rng(seed).normal(size=len(labels)) + 0.5 * labels, labels, offsets)


@pytest.mark.parametrize("kind", ["impressions", "sequences", "pairs"])
def test_differences_are_paired_by_query(kind, tmp_path):
    task = task_of(make_data(kind, tmp_path))
    theirs = (bm25_ranks if kind == "pairs" else popularity_ranks)(task.data, task.splits["test"])
    mine = model_ranks(theirs)
    (found,) = baselines_of(task, mine, METRICS)
    assert found.name == ("BM25" if kind == "pairs" else "most popular")
    assert (found.corpus is not None) == (kind == "pairs")
    summaries = [metrics.evaluate(ranks, (3, 5, 10)) for ranks in (mine, theirs)]
    for gap in found.differences:
        ours, other = (summary[gap.metric].value for summary in summaries)
        assert gap.mean == pytest.approx(ours - other)
        assert found.scores.value(gap.metric) == pytest.approx(other)
        assert gap.queries == summaries[0].queries
    per_query = metrics.hit_rate(mine, 5) - metrics.hit_rate(theirs, 5)
    expected = stats.ttest_1samp(per_query[mine.scored], 0).confidence_interval(0.95)
    hit = found.differences[0]
    if hit.se:
        assert (hit.low, hit.high) == pytest.approx((expected.low, expected.high))


def test_the_error_of_an_auc_difference_is_that_of_queries(tmp_path):
    """Resampled queries, for a metric whose denominator differs between queries."""
    data = make_data("impressions", tmp_path)
    theirs = popularity_ranks(data, evaluation_splits(data)["val"])
    mine = model_ranks(theirs)
    gap = query_difference(mine, theirs, "auc")
    n = len(mine.positives)
    starts = np.append(0, np.cumsum(mine.positives))
    dice, drawn = np.random.default_rng(0), []
    for _ in range(600):
        chosen = dice.integers(0, n, n)
        at = np.concatenate([np.arange(starts[q], starts[q + 1]) for q in chosen])
        pair = [metrics.Ranks(r.above[at], r.tied[at], r.positives[chosen], r.sizes[chosen]) for r in (mine, theirs)]
        drawn.append(metrics.evaluate(pair[0]).auc.value - metrics.evaluate(pair[1]).auc.value)
    assert gap.se == pytest.approx(np.std(drawn), rel=0.25)


def test_rankings_of_other_queries_cannot_be_paired(tmp_path):
    data = make_data("sequences", tmp_path)
    split = evaluation_splits(data)["test"]
    whole, part = popularity_ranks(data, split), popularity_ranks(data, subset(split, 5))
    with pytest.raises(InputError, match="cannot be paired"):
        query_difference(whole, part, "hit@5")
    with pytest.raises(InputError, match=r"expected auc, .*hit@N"):
        query_difference(whole, whole, "precision")


def test_one_query_has_no_interval(tmp_path):
    data = make_data("sequences", tmp_path)
    ranks = popularity_ranks(data, subset(evaluation_splits(data)["test"], 1))
    gap = query_difference(ranks, ranks, "hit@5")
    assert (gap.mean, gap.se, gap.low, gap.high, gap.queries) == (0.0, None, None, None, 1)

r"""Baselines that need no training: the most popular items, and BM25 for text pairs.

Each ranks exactly the queries and candidates of the test split, so that a model is compared with it query by query.

BM25 gives a text d for a query q the score

.. math:: \sum_{w \in q} \mathrm{idf}(w)\,\frac{f\,(k_1 + 1)}{f + k_1 (1 - b + b\,|d| / \overline{|d|})}, \qquad
   \mathrm{idf}(w) = \ln\Bigl(1 + \frac{N - n_w + 1/2}{n_w + 1/2}\Bigr)

for a word w that d has f times and n_w of all N right texts have. It reads whole texts; the statistics are those of all
right texts of the data, whatever their split. Shapes: Q queries, N texts, V words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import stdtrit

from negwise import metrics
from negwise.datasets import TaskData
from negwise.errors import InputError
from negwise.metrics import Ranks
from negwise.metrics.model_ranking import (
    CandidateVectors,
    DistinctIds,
    EvaluationSplit,
    FullRanking,
    rank_positives,
)
from negwise.records import Baseline, CorpusScores, QueryDifference, Scores
from negwise.tasks.task import Task

POPULAR, BM25 = "most popular", "BM25"
K1, B = 1.2, 0.75
"""The usual constants of BM25."""
CHUNK_SCORES = 1 << 22
"""Scores of BM25 at a time: 32 MB, and half as much again while they are sparse."""
CONFIDENCE = 0.95

Ints = NDArray[np.int64]


def baselines_of(task: Task, ranks: Ranks, metrics: Sequence[str]) -> tuple[Baseline, ...]:
    """What ranks the test split of ``task`` without training, and how far the model is ahead of it.

    ``ranks`` are those of the model on that split. Text pairs get BM25, all other data the most popular items.
    """
    split = task.splits["test"]
    if task.data.name != "pairs":
        return (baseline_of(POPULAR, popularity_ranks(task.data, split), ranks, metrics),)
    found = baseline_of(BM25, bm25_ranks(task.data, _full(split)), ranks, metrics)
    whole = corpus_split(task)
    if whole is None:
        return (found,)
    return (replace(found, corpus=scores_of(bm25_ranks(task.data, whole), metrics)),)


def popularity_ranks(data: TaskData, split: EvaluationSplit) -> Ranks:
    """Ranks where the score of an item is how often it was a positive in training."""
    ids = torch.from_numpy(split.candidates)
    distinct = DistinctIds.of(ids, data.n_items)
    counts = torch.from_numpy(data.popularity).double()
    vectors = CandidateVectors(distinct, counts[distinct.ids][:, None])
    return _joined(
        [
            split.ranks(torch.ones(len(positives), 1, dtype=torch.float64), positives, groups, vectors)
            for _, positives, groups in _chunks(split, split.rows)
        ]
    )


def bm25_ranks(data: TaskData, split: FullRanking) -> Ranks:
    """Ranks where the score of a right text is its BM25 for the left text, in blocks of bounded memory."""
    if data.texts is None:
        raise InputError(f"BM25 needs text pairs; got {data.name} without texts.")
    left, right = data.texts.fields["title"], data.texts.fields["body"]
    words = len(left.word_list)
    weights = bm25_weights(_counts(right.words.offsets, right.words.ids, words))
    candidates = weights[split.first : split.last].T.tocsr()  # (V, N)
    found = []
    for examples, positives, groups in _chunks(split, max(1, CHUNK_SCORES // (split.last - split.first))):
        own = left.words.take(split.examples.users[examples])
        scores = (_counts(own.offsets, own.ids, words) @ candidates).toarray()
        found.append(split.ranks_of_scores(scores, positives, groups))
    return _joined(found)


def bm25_weights(counts: Any) -> Any:
    """The BM25 weight of each word in each text, (N, V) sparse, from its ``counts`` there."""
    texts = counts.shape[0]
    having = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log1p((texts - having + 0.5) / (having + 0.5))
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    long = 1 - B + B * lengths / max(lengths.mean(), 1e-300)
    row = np.repeat(np.arange(texts), np.diff(counts.indptr))
    values = idf[counts.indices] * counts.data * (K1 + 1) / (counts.data + K1 * long[row])
    return sparse.csr_matrix((values, counts.indices, counts.indptr), counts.shape)


def corpus_split(task: Task) -> FullRanking | None:
    """The test queries of text pairs among the right texts of all splits; None for other data."""
    if task.data.name != "pairs":
        return None
    return replace(_full(task.splits["test"]), first=0, last=task.data.n_items)


def corpus_scores(task: Task, metrics: Sequence[str]) -> CorpusScores | None:
    """The scores of the task's model among the whole corpus, whose texts are all encoded; None for other data."""
    split = corpus_split(task)
    if split is None:
        return None
    return CorpusScores(split.last - split.first, scores_of(rank_positives(task.model, split), metrics))


def scores_of(ranks: Ranks, names: Sequence[str]) -> Scores:
    """Every metric of ``ranks``, with the cut-offs of ``names`` beside the usual ones."""
    cuts = {int(cut) for name in names if (cut := name.partition("@")[2]).isdigit()}
    return Scores(**metrics.evaluate(ranks, {5, 10, *cuts}).record())


def query_difference(ranks: Ranks, others: Ranks, metric: str) -> QueryDifference:
    """``metric`` of ``ranks`` less that of ``others``, with a 95% interval by Student's t over queries."""
    gap = metrics.difference(ranks, others, metric)
    if gap.n < 2:
        return QueryDifference(metric, gap.value if gap.n else 0.0, None, None, None, gap.n)
    reach = float(stdtrit(gap.n - 1, (1 + CONFIDENCE) / 2)) * gap.se
    return QueryDifference(metric, gap.value, gap.se, gap.value - reach, gap.value + reach, gap.n)


def baseline_of(name: str, theirs: Ranks, ranks: Ranks, names: Sequence[str]) -> Baseline:
    """The ranks ``theirs`` beside those of the model, ``ranks``, of the same queries."""
    gaps = tuple(query_difference(ranks, theirs, metric) for metric in names)
    return Baseline(name, scores_of(theirs, names), gaps)


def _chunks(split: EvaluationSplit, size: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Examples, positives and groups of ``size`` queries at a time."""
    for start in range(0, len(split.query_examples), size):
        examples = split.query_examples[start : start + size]
        positives, groups = split.examples.positives[examples], split.examples.groups[examples]
        yield examples, positives.astype(np.int64, copy=False), groups.astype(np.int64, copy=False)


def _counts(offsets: Ints, words: Ints, n_words: int) -> Any:
    """How often each of the lists has each word, (lists, V) sparse."""
    ones = np.ones(len(words))
    found = sparse.csr_matrix((ones, words, offsets), (len(offsets) - 1, n_words))
    found.sum_duplicates()
    return found


def _full(split: EvaluationSplit) -> FullRanking:
    assert isinstance(split, FullRanking)  # text pairs have no impressions
    return split


def _joined(found: Sequence[Ranks]) -> Ranks:
    names = ("above", "tied", "positives", "sizes")
    return Ranks(*(np.concatenate([getattr(ranks, name) for ranks in found]) for name in names))

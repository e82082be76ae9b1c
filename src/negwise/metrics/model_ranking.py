"""Ranking in blocks: each candidate is encoded once, queries are ranked chunk by chunk, no loop over queries.

A split says which candidates a query is ranked among: the whole catalogue less exclusions (`FullRanking`), or what was
shown to it (`ImpressionRanking`). Several processes deal out whole chunks and send each other vectors and ranks, which
are whole numbers: any number of processes gives the same metrics, to the last bit. Q queries, N candidates, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import distributed
from negwise.errors import InputError
from negwise.metrics.ranks import Ranks, rank, rank_catalogue

Ints = NDArray[np.int64]
CHUNK_ITEMS = 1024
CHUNK_QUERIES = 512
CHUNK_SCORES = 1 << 24
SUBSET_SEED = 0x5EED
"""Seed of a subset of queries: the same whatever the seed of the run, so that runs can be compared."""
DENSE = 8
"""A table of the whole catalogue beats a sort from about one id in this many items on (measured on a CPU)."""


@dataclass(frozen=True, eq=False)
class DistinctIds:
    """``ids`` (U,), sorted, each once; ``places(wanted)`` says where among them each of ``wanted`` is."""

    ids: Tensor
    table: Tensor | None = None  # (n_items,), where there is room for it

    @classmethod
    def of(cls, wanted: Tensor, n_items: int) -> DistinctIds:
        """The same as ``torch.unique(wanted)``, without the sort where the ids are many."""
        if wanted.numel() * DENSE < n_items:
            return cls(torch.unique(wanted))
        # Not present[wanted] = True, which takes longer.
        present = torch.zeros(n_items, dtype=torch.bool, device=wanted.device).index_fill_(0, wanted, True)
        return cls(present.nonzero()[:, 0], present.cumsum(0) - 1)

    def places(self, wanted: Tensor) -> Tensor:
        return torch.searchsorted(self.ids, wanted) if self.table is None else self.table[wanted]


@dataclass(frozen=True, eq=False)
class CandidateVectors:
    """Vectors (N, D) of the candidates ``distinct``."""

    distinct: DistinctIds
    vectors: Tensor

    def at(self, ids: Tensor) -> Tensor:
        return self.vectors[self.distinct.places(ids)]


class RaggedLists(Protocol):
    """Row r has ``ids[offsets[r]:offsets[r + 1]]``."""

    @property
    def offsets(self) -> Ints: ...

    @property
    def ids(self) -> Ints: ...


class EvaluationSplit(Protocol):
    """A split to evaluate: query q is built from example ``query_examples[q]``."""

    @property
    def examples(self) -> Any: ...

    @property
    def query_examples(self) -> Ints: ...

    @property
    def candidates(self) -> Ints:
        """Every id that any query is compared with."""
        ...

    @property
    def rows(self) -> int:
        """How many queries to rank at a time."""
        ...

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors) -> Ranks: ...

    def top(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors, n: int) -> Tensor:
        """The candidates on the first ``n`` places of each query, one after the other; fewer where there are fewer."""
        ...

    def relevant(self, positives: Ints, groups: Ints) -> Ints:
        """Every positive of these queries, one after the other."""
        ...


@dataclass(frozen=True, eq=False)
class FullRanking:
    """Each example against all ids from ``first`` to ``last`` - 1, less the exclusions of its group."""

    examples: Any
    query_examples: Ints
    first: int
    last: int
    exclusions: RaggedLists

    @property
    def candidates(self) -> Ints:
        return np.arange(self.first, self.last)

    @property
    def rows(self) -> int:
        return max(1, min(CHUNK_QUERIES, CHUNK_SCORES // (self.last - self.first)))

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors) -> Ranks:
        return self.ranks_of_scores(self._scores(queries, vectors), positives, groups)

    def ranks_of_scores(self, scores: Any, positives: Ints, groups: Ints) -> Ranks:
        """The same from ``scores`` (Q, N), the candidates in the order of their ids."""
        return rank_catalogue(scores, positives - self.first, *self._excluded(groups))

    def top(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors, n: int) -> Tensor:
        scores = self._scores(queries, vectors)
        ids, bounds = self._excluded(groups)
        row = np.repeat(np.arange(len(groups)), np.diff(bounds))
        other = ids != positives[row] - self.first  # the positive may be among the exclusions
        row, ids = row[other], ids[other]
        scores[torch.from_numpy(row).to(scores.device), torch.from_numpy(ids).to(scores.device)] = -torch.inf
        best, best_ids = scores.topk(min(n, scores.shape[1]), dim=1)
        return best_ids[best > -torch.inf] + self.first

    def relevant(self, positives: Ints, groups: Ints) -> Ints:  # noqa: ARG002
        return positives

    def _scores(self, queries: Tensor, vectors: CandidateVectors) -> Tensor:
        """(Q, N), the candidates in the order of their ids."""
        start = int(vectors.distinct.places(torch.tensor(self.first, device=queries.device)))
        return queries @ vectors.vectors[start : start + self.last - self.first].T

    def _excluded(self, groups: Ints) -> tuple[Ints, Ints]:
        """The exclusions of each group, as places among the candidates, and offsets."""
        flat, offsets = _entries(self.exclusions.offsets, groups)
        ids = self.exclusions.ids[flat].astype(np.int64, copy=False)
        inside = (ids >= self.first) & (ids < self.last)
        return ids[inside] - self.first, np.concatenate(([0], np.cumsum(inside)))[offsets]


@dataclass(frozen=True, eq=False)
class ImpressionRanking:
    """Each group once, among its ``impressions``; ``labels`` stand beside ``impressions.ids``, 1 for a positive."""

    examples: Any
    query_examples: Ints
    groups: Ints
    impressions: RaggedLists
    labels: NDArray[Any]

    @property
    def candidates(self) -> Ints:
        return np.unique(self._ids(_entries(self.impressions.offsets, self.groups)[0]))

    @property
    def rows(self) -> int:
        return CHUNK_QUERIES

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors) -> Ranks:  # noqa: ARG002
        flat, offsets = _entries(self.impressions.offsets, groups)
        return rank(self._scores(queries, flat, offsets, vectors)[1], self.labels[flat], offsets)

    def top(self, queries: Tensor, positives: Ints, groups: Ints, vectors: CandidateVectors, n: int) -> Tensor:  # noqa: ARG002
        flat, offsets = _entries(self.impressions.offsets, groups)
        row, scores = self._scores(queries, flat, offsets, vectors)
        falling = torch.argsort(scores, descending=True, stable=True)
        order = falling[torch.argsort(row[falling], stable=True)]  # by query, the best first
        starts = torch.from_numpy(offsets[:-1]).to(row.device)
        place = torch.arange(len(row), device=row.device) - starts[row]
        return torch.from_numpy(self._ids(flat)).to(row.device)[order[place < n]]

    def relevant(self, positives: Ints, groups: Ints) -> Ints:  # noqa: ARG002
        flat, _ = _entries(self.impressions.offsets, groups)
        return self._ids(flat[self.labels[flat] == 1])

    def _ids(self, flat: Ints) -> Ints:
        """int64, also from lists of int32, as large ones are."""
        return self.impressions.ids[flat].astype(np.int64, copy=False)

    def _scores(self, queries: Tensor, flat: Ints, offsets: Ints, vectors: CandidateVectors) -> tuple[Tensor, Tensor]:
        """The query and the score of each impression of these queries, one after the other."""
        row = torch.from_numpy(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))).to(queries.device)
        ids = torch.from_numpy(self._ids(flat)).to(queries.device)
        return row, torch.einsum("nd,nd->n", queries[row], vectors.at(ids))


def subset(split: Any, size: int) -> Any:
    """``size`` of the queries of ``split``, or all of them where there are no more; always the same ones."""
    queries = len(split.query_examples)
    if size >= queries:
        return split
    kept = subset_places(queries, size)
    changes = {name: getattr(split, name)[kept] for name in ("query_examples", "groups") if hasattr(split, name)}
    return replace(split, **changes)


def subset_places(queries: int, size: int) -> Ints:
    """(size,) Which of so many queries `subset` keeps, in their order."""
    return np.sort(np.random.default_rng(SUBSET_SEED).permutation(queries)[:size])


def rank_positives(
    model: Any,
    split: EvaluationSplit,
    *,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[], None] = lambda: None,
) -> Ranks:
    """The rank of every positive of ``split``, dropout off; scores are dot products in float32 or better.

    ``autocast`` is entered for encoding. ``between`` is called between chunks and may raise to end the ranking. Every
    process calls it equally often, so that processes can agree in it.
    """
    with _evaluating(model):
        found = [split.ranks(*chunk) for chunk in encoded_queries(model, split, autocast, between)]
    return _merge(found, next(model.parameters()).device)


def recommend(
    model: Any,
    split: EvaluationSplit,
    popularity: Ints,
    *,
    n: int = 10,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """What ``model`` puts on the first ``n`` places: how much of the catalogue, and how popular it is.

    ``coverage`` is the share of the candidates that is recommended to anybody. ``popularity`` and
    ``positives_popularity`` are mean counts in training, ``popularity`` (n_items,), of what is recommended and of the
    positives; None where training had none of the candidates.
    """
    counts = torch.zeros(len(popularity), dtype=torch.int64)
    sums = torch.zeros(3, dtype=torch.float64)  # popularity of the positives, their number, and that of the queries
    with _evaluating(model):
        for queries, positives, groups, vectors in encoded_queries(model, split, autocast, between):
            ids = split.top(queries, positives, groups, vectors, n).cpu()
            counts += torch.bincount(ids, minlength=len(popularity))
            wanted = split.relevant(positives, groups)
            sums += torch.tensor([float(popularity[wanted].sum()), float(len(wanted)), float(len(positives))])
    device = next(model.parameters()).device
    counts, sums = distributed.total(counts.to(device)).cpu(), distributed.total(sums.to(device)).cpu()
    known = bool(popularity[split.candidates].any())
    mean = (counts.double() @ torch.from_numpy(popularity).double()) / counts.sum().clamp(min=1)
    return {
        "n": n,
        "queries": int(sums[2]),
        "catalogue": len(split.candidates),
        "coverage": int((counts > 0).sum()) / len(split.candidates),
        "popularity": float(mean) if known else None,
        "positives_popularity": float(sums[0] / sums[1]) if known else None,
    }


def encoded_queries(
    model: Any,
    split: EvaluationSplit,
    autocast: Callable[[], AbstractContextManager[Any]],
    between: Callable[[], None],
) -> Iterator[tuple[Tensor, Ints, Ints, CandidateVectors]]:
    """The chunks of this process: queries (Q, D), positives (Q,), groups (Q,), and the vectors of all candidates."""
    if len(split.query_examples) == 0:
        raise InputError("there is no query to evaluate; the split is empty")
    device = next(model.parameters()).device
    batches = [
        split.examples.batch(split.query_examples[part]) for part in _chunks(len(split.query_examples), split.rows)
    ]
    wanted = [torch.from_numpy(split.candidates)]
    if model.needs_items:
        wanted += [query.items.flatten() for query, _, _ in batches]
    ids = torch.cat(wanted).to(device)
    distinct = DistinctIds.of(ids, int(ids.max()) + 1)
    with autocast():
        parts = _chunks(len(distinct.ids), CHUNK_ITEMS)
        shared = len(parts) >= distributed.world_size()
        mine = []
        for part in _own(parts) if shared else parts:
            between()
            if part is not None:
                mine.append(_widened(model.encode_candidates(distinct.ids[part])))
        vectors = torch.cat(mine)
        candidates = CandidateVectors(distinct, distributed.gather(vectors) if shared else vectors)
    for batch in _own(batches):
        between()
        if batch is None:
            continue
        query, positives, groups = batch
        with autocast():
            queries = _widened(model.encode_queries(query.to(device), candidates.at))
        yield queries, positives.numpy(), groups.numpy(), candidates


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Dropout off and no gradients; afterwards the model is as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def _entries(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Where the entries of the lists ``rows`` are, list after list, and the offsets of these."""
    start, length = offsets[rows], offsets[rows + 1] - offsets[rows]
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    return np.arange(bounds[-1]) + np.repeat(start - bounds[:-1], length), bounds


def _widened(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _own(chunks: Sequence[Any]) -> Sequence[Any]:
    """The chunks of this process: contiguous, so that the results of all in order are those of one process.

    Then None, where another process has one more.
    """
    rank, world = distributed.process_rank(), distributed.world_size()
    mine = chunks[len(chunks) * rank // world : len(chunks) * (rank + 1) // world]
    return [*mine, *[None] * (-(-len(chunks) // world) - len(mine))]


def _merge(found: Sequence[Ranks], device: torch.device) -> Ranks:
    def merged(name: str) -> Any:
        here = [np.zeros(0, np.int64), *(getattr(ranks, name) for ranks in found)]
        part: Tensor = torch.from_numpy(np.concatenate(here)).to(device)
        return distributed.gather(part).cpu().numpy()

    return Ranks(*(merged(name) for name in ("above", "tied", "positives", "sizes")))

"""Among which candidates a query is judged: the catalogue less what was seen, or what was shown to it.

``ranks`` of either takes the vectors of the queries and those of the candidates and gives the standing of each
positive. Q queries, N candidates, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import metrics
from negwise.errors import InputError
from negwise.training.asked import Distinct
from negwise.training.batches import Examples, Ints

CHUNK_QUERIES = 512
CHUNK_SCORES = 1 << 24
SUBSET = 0x5EED
"""Names the draw of a subset: the same queries whatever the seed of the run, so that runs can be compared."""


class Lists(Protocol):
    """Ragged lists: row r has ``ids[offsets[r]:offsets[r + 1]]``."""

    @property
    def offsets(self) -> Ints: ...

    @property
    def ids(self) -> Ints: ...


@dataclass(frozen=True, eq=False)
class Table:
    """Vectors (N, D) of the candidates ``distinct``."""

    distinct: Distinct
    vectors: Tensor

    def at(self, ids: Tensor) -> Tensor:
        return self.vectors[self.distinct.at(ids)]


class EvaluationSplit(Protocol):
    """A split to be evaluated. ``chosen`` has the example that asks each query."""

    @property
    def examples(self) -> Examples: ...

    @property
    def chosen(self) -> Ints: ...

    @property
    def candidates(self) -> Ints:
        """Every id that any query is compared with."""
        ...

    @property
    def rows(self) -> int:
        """How many queries to rank at a time."""
        ...

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, table: Table) -> metrics.Ranks: ...

    def top(self, queries: Tensor, positives: Ints, groups: Ints, table: Table, n: int) -> Tensor:
        """The candidates on the first ``n`` places of each query, one after the other; fewer where there are fewer."""
        ...

    def right(self, positives: Ints, groups: Ints) -> Ints:
        """Everything that these queries should have been given, one after the other."""
        ...


@dataclass(frozen=True, eq=False)
class FullRanking:
    """Each example against all ids from ``first`` to ``last`` - 1, less what its group has ``seen``."""

    examples: Examples
    chosen: Ints
    first: int
    last: int
    seen: Lists

    @property
    def candidates(self) -> Ints:
        return np.arange(self.first, self.last)

    @property
    def rows(self) -> int:
        return max(1, min(CHUNK_QUERIES, CHUNK_SCORES // (self.last - self.first)))

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, table: Table) -> metrics.Ranks:
        scores = self._scores(queries, table)
        return metrics.rank_catalogue(scores, positives - self.first, *self._excluded(groups))

    def top(self, queries: Tensor, positives: Ints, groups: Ints, table: Table, n: int) -> Tensor:
        scores = self._scores(queries, table)
        ids, bounds = self._excluded(groups)
        row = np.repeat(np.arange(len(groups)), np.diff(bounds))
        other = ids != positives[row] - self.first  # what is asked for may stand among what was seen
        row, ids = row[other], ids[other]
        scores[torch.from_numpy(row).to(scores.device), torch.from_numpy(ids).to(scores.device)] = -torch.inf
        best, ids_of_best = scores.topk(min(n, scores.shape[1]), dim=1)
        return ids_of_best[best > -torch.inf] + self.first

    def right(self, positives: Ints, groups: Ints) -> Ints:  # noqa: ARG002
        return positives

    def _scores(self, queries: Tensor, table: Table) -> Tensor:
        """(Q, N), the candidates in the order of their ids."""
        start = int(table.distinct.at(torch.tensor(self.first, device=queries.device)))
        return queries @ table.vectors[start : start + self.last - self.first].T

    def _excluded(self, groups: Ints) -> tuple[Ints, Ints]:
        """What each group has seen, as places among the candidates, and offsets."""
        flat, offsets = _lists(self.seen.offsets, groups)
        ids = self.seen.ids[flat]
        here = (ids >= self.first) & (ids < self.last)
        return ids[here] - self.first, np.concatenate(([0], np.cumsum(here)))[offsets]


@dataclass(frozen=True, eq=False)
class ImpressionRanking:
    """Each group once, among what was ``shown`` to it; ``labels`` stand beside ``shown.ids``, 1 for a positive."""

    examples: Examples
    chosen: Ints
    groups: Ints
    shown: Lists
    labels: NDArray[Any]

    @property
    def candidates(self) -> Ints:
        return np.unique(self.shown.ids[_lists(self.shown.offsets, self.groups)[0]])

    @property
    def rows(self) -> int:
        return CHUNK_QUERIES

    def ranks(self, queries: Tensor, positives: Ints, groups: Ints, table: Table) -> metrics.Ranks:  # noqa: ARG002
        flat, offsets = _lists(self.shown.offsets, groups)
        return metrics.rank(self._scores(queries, flat, offsets, table)[1], self.labels[flat], offsets)

    def top(self, queries: Tensor, positives: Ints, groups: Ints, table: Table, n: int) -> Tensor:  # noqa: ARG002
        flat, offsets = _lists(self.shown.offsets, groups)
        row, scores = self._scores(queries, flat, offsets, table)
        falling = torch.argsort(scores, descending=True, stable=True)
        order = falling[torch.argsort(row[falling], stable=True)]  # by query, the best first
        starts = torch.from_numpy(offsets[:-1]).to(row.device)
        place = torch.arange(len(row), device=row.device) - starts[row]
        return torch.from_numpy(self.shown.ids[flat]).to(row.device)[order[place < n]]

    def right(self, positives: Ints, groups: Ints) -> Ints:  # noqa: ARG002
        flat, _ = _lists(self.shown.offsets, groups)
        return self.shown.ids[flat[self.labels[flat] == 1]]

    def _scores(self, queries: Tensor, flat: Ints, offsets: Ints, table: Table) -> tuple[Tensor, Tensor]:
        """Of all that was shown to these queries, one after the other: whose it is, and its score."""
        row = torch.from_numpy(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))).to(queries.device)
        ids = torch.from_numpy(self.shown.ids[flat]).to(queries.device)
        return row, torch.einsum("nd,nd->n", queries[row], table.at(ids))


def _lists(offsets: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Where the entries of the lists ``rows`` are, list after list, and the offsets of these."""
    start, length = offsets[rows], offsets[rows + 1] - offsets[rows]
    bounds = np.concatenate((np.zeros(1, np.int64), np.cumsum(length)))
    return np.arange(bounds[-1]) + np.repeat(start - bounds[:-1], length), bounds


class SplitExamples(Examples, Protocol):
    """Examples of a split: what `judged` reads of them beside their batches."""

    @property
    def groups(self) -> Ints: ...

    @property
    def candidates(self) -> tuple[int, int]: ...


class Task(Protocol):
    """Three splits and the lists by which they are judged; see `negwise.datasets`."""

    @property
    def train(self) -> Any: ...

    @property
    def val(self) -> Any: ...

    @property
    def test(self) -> Any: ...

    @property
    def eval_exclusions(self) -> Lists: ...

    @property
    def impressions(self) -> Lists | None: ...

    @property
    def labels(self) -> NDArray[Any] | None: ...


def judged(task: Task, most: int | None = None) -> dict[str, EvaluationSplit]:
    """How to evaluate ``train``, ``val`` and ``test`` of ``task``: among what was shown where that is known, else by
    full ranking. Training is judged on a fixed subset as large as validation; ``most`` bounds all of them.
    """
    if most is not None and most < 2:
        raise InputError(f"queries: got {most}, expected 2 or more, as one has no standard error.")
    whole: Mapping[str, EvaluationSplit] = {
        name: _whole(task, getattr(task, name)) for name in ("train", "val", "test")
    }
    size = {"train": len(whole["val"].chosen)}
    return {name: subset(split, min(size.get(name, 2**62), most or 2**62)) for name, split in whole.items()}


def subset(split: Any, size: int) -> Any:
    """``size`` of the queries of ``split``, or all of them where there are no more; always the same ones."""
    queries = len(split.chosen)
    if size >= queries:
        return split
    kept = np.sort(np.random.default_rng(SUBSET).permutation(queries)[:size])
    changes = {name: getattr(split, name)[kept] for name in ("chosen", "groups") if hasattr(split, name)}
    return replace(split, **changes)


def _whole(task: Task, examples: SplitExamples) -> EvaluationSplit:
    if task.impressions is None or task.labels is None:
        return FullRanking(examples, np.arange(len(examples)), *examples.candidates, task.eval_exclusions)
    groups, chosen = np.unique(examples.groups, return_index=True)
    return ImpressionRanking(examples, chosen, groups, task.impressions, task.labels)

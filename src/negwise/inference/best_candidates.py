"""The n highest scores of each query among all candidates: exact, in blocks, without sorting what cannot be among them.

Q queries, N candidates, D width. A block of scores is folded into columns of `FOLD` candidates each, and the maximum of
each column is found in one pass. The n highest scores lie in the n columns with the highest maxima: every other column
has a maximum that n scores reach or exceed. So only n columns are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise.datasets import Ragged
from negwise.errors import InputError
from negwise.host_copy import to_device

FOLD = 64
BLOCK_SCORES = {"cpu": 1 << 24, "cuda": 1 << 27}
"""Scores that are held at a time at most: 64 MB on a CPU, 512 MB on a GPU."""
BLOCK_ROWS = {"cpu": 256, "cuda": 1024}
"""Queries of a block at most. On a CPU the product gains nothing from more, and memory that is not in a cache costs. A
GPU is busier with more."""
NOBODY = -1
"""The id on a place that no candidate is on."""


@dataclass(frozen=True, eq=False)
class TopN:
    """The best of each query, the best first: ``found[0]`` is a list of (id, score), and so is each in a loop.

    ``ids`` (Q, n) are numbers of candidates, -1 on places that are empty because fewer remained; ``scores`` (Q, n) are
    float32. ``queries`` names each row. ``name`` makes ids of numbers. ``left_out`` are queries that were asked for and
    left out.
    """

    queries: Sequence[Any]
    ids: NDArray[np.int64]
    scores: NDArray[np.float32]
    name: Callable[[NDArray[np.int64]], Sequence[Any]]
    left_out: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> list[tuple[Any, float]]:
        there = self.ids[row] != NOBODY
        return list(zip(self.name(self.ids[row][there]), self.scores[row][there].tolist(), strict=True))

    def __iter__(self) -> Iterator[list[tuple[Any, float]]]:
        return (self[row] for row in range(len(self)))

    def __repr__(self) -> str:
        left = f", {len(self.left_out)} left out" if self.left_out else ""
        return f"TopN({len(self)} queries, n={self.ids.shape[1]}{left})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        rows = zip(self.queries, self, strict=True)
        return {
            "found": [
                {"query": _plain(query), "items": [{"item": item, "score": score} for item, score in row]}
                for query, row in rows
            ],
            "left_out": [_plain(query) for query in self.left_out],
        }


def _plain(value: Any) -> Any:
    """A number of NumPy as one of Python's, which JSON knows."""
    return value.item() if isinstance(value, np.generic) else value


def top_n(
    queries: Tensor,
    candidates: Tensor,
    n: int,
    *,
    exclude: Ragged | None = None,
    at_most: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Ids (Q, n) and scores (Q, n) of the candidates (N, D) with the highest dot products with queries (Q, D).

    The same as ``(queries @ candidates.T).topk(n)``, in bounded memory; (Q, N) where n is more. Equal scores are in the
    order of their ids. ``exclude`` has a list of ids for each query; ``at_most`` (Q,) excludes scores above it. Where
    fewer than n remain, the id is -1 and the score -inf.
    """
    kind = "cuda" if queries.device.type == "cuda" else "cpu"
    rows = max(1, min(BLOCK_ROWS[kind], BLOCK_SCORES[kind] // max(len(candidates), 1)))
    width = min(check_n(n), len(candidates))
    ids = torch.empty((len(queries), width), dtype=torch.int64, device=queries.device)
    best = torch.empty((len(queries), width), dtype=queries.dtype, device=queries.device)
    scores = torch.empty(min(rows, len(queries)), len(candidates), dtype=queries.dtype, device=queries.device)
    for start in range(0, len(queries) if width else 0, rows):
        part = slice(start, min(start + rows, len(queries)))
        block = torch.mm(queries[part], candidates.T, out=scores[: part.stop - start])
        if exclude is not None:
            out = exclude.between(part.start, part.stop)
            block.view(-1).index_fill_(0, to_device(out.rows * len(candidates) + out.ids, block.device), -torch.inf)
        if at_most is not None:
            block.masked_fill_(block > at_most[part, None], -torch.inf)
        best[part], ids[part] = _best(block, width)
    return ids.masked_fill_(best == -torch.inf, NOBODY), best


def check_n(n: int) -> int:
    """``n``, a whole number from 1 on."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise InputError(f"n: got {n!r}, expected a whole number, 1 or more.")
    return n


def merge(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor], n: int) -> tuple[Tensor, Tensor]:
    """The best n of two results of `top_n` over different candidates."""
    ids, scores = torch.cat((first[0], second[0]), 1), torch.cat((first[1], second[1]), 1)
    best, place = scores.topk(min(n, scores.shape[1]), dim=1)
    best, ids = _in_order(best, ids.gather(1, place))
    return ids, best


def _best(block: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Scores and places (R, n) of the highest of a block (R, N), n <= N."""
    columns = block.shape[1] // FOLD
    if columns <= 2 * n:  # too few to leave many out
        return _in_order(*block.topk(n, dim=1))
    folded = columns * FOLD
    # Candidate j is in column j % columns: maxima over whole rows of memory.
    highest = block.as_strided((len(block), FOLD, columns), (block.stride(0), columns, 1)).amax(1)
    chosen = highest.topk(n, dim=1, sorted=False).indices  # (R, n)
    places = (chosen[:, None, :] + torch.arange(FOLD, device=block.device)[:, None] * columns).flatten(1)
    rest = torch.arange(folded, block.shape[1], device=block.device).expand(len(block), -1)
    places = torch.cat((places, rest), 1)
    best, at = block.gather(1, places).topk(n, dim=1)
    return _in_order(best, places.gather(1, at))


def _in_order(scores: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Sorted by falling score, equal ones by id."""
    by_id = ids.argsort(dim=1)
    ids, scores = ids.gather(1, by_id), scores.gather(1, by_id)
    falling = scores.argsort(dim=1, descending=True, stable=True)
    return scores.gather(1, falling), ids.gather(1, falling)

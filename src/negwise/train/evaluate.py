"""Evaluation: each candidate encoded once, queries ranked chunk by chunk, no loop over queries.

Several processes deal out whole chunks and send each other vectors and ranks, which are whole numbers: any number of
processes gives the same metrics, to the last bit. Q queries, N candidates, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise import distributed, metrics
from negwise.errors import InputError
from negwise.train.judging import Judged, Table
from negwise.train.step import Distinct

CHUNK_ITEMS = 1024


def evaluate(
    model: Any,
    split: Judged,
    *,
    cutoffs: Iterable[int] = (5, 10),
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[], None] = lambda: None,
) -> metrics.Tally:
    """Every metric of ``model`` on ``split``, dropout off; scores are dot products in float32 or better.

    ``autocast`` is entered for encoding; ``between`` is called between chunks and may raise to end the evaluation.
    """
    if len(split.chosen) == 0:
        raise InputError("there is no query to evaluate; the split is empty")
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return metrics.evaluate(_ranks(model, split, device, autocast, between), cutoffs)
    finally:
        model.train(training)


def _ranks(
    model: Any,
    split: Judged,
    device: torch.device,
    autocast: Callable[[], AbstractContextManager[Any]],
    between: Callable[[], None],
) -> metrics.Ranks:
    batches = [split.examples.batch(split.chosen[part]) for part in _chunks(len(split.chosen), split.rows)]
    wanted = [torch.from_numpy(split.candidates)]
    if model.needs_items:
        wanted += [query.items.flatten() for query, _, _ in batches]
    ids = torch.cat(wanted).to(device)
    distinct = Distinct.of(ids, int(ids.max()) + 1)
    with autocast():
        parts = _chunks(len(distinct.ids), CHUNK_ITEMS)
        shared = len(parts) >= distributed.world_size()
        mine = []
        for part in _mine(parts) if shared else parts:
            between()
            mine.append(_wide(model.encode_candidates(distinct.ids[part])))
        vectors = torch.cat(mine)
        table = Table(distinct, distributed.gather(vectors) if shared else vectors)
    found = []
    for query, positives, groups in _mine(batches):
        between()
        with autocast():
            queries = _wide(model.encode_queries(query.to(device), table.at))
        found.append(split.ranks(queries, positives.numpy(), groups.numpy(), table))
    return _merge(found, device)


def _wide(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _mine(chunks: Sequence[Any]) -> Sequence[Any]:
    """This rank's chunks: a run of them, so that all ranks' results in order are those of one process."""
    rank, world = distributed.rank(), distributed.world_size()
    return chunks[len(chunks) * rank // world : len(chunks) * (rank + 1) // world]


def _merge(found: Sequence[metrics.Ranks], device: torch.device) -> metrics.Ranks:
    def merged(name: str) -> Any:
        here = [np.zeros(0, np.int64), *(getattr(ranks, name) for ranks in found)]
        part: Tensor = torch.from_numpy(np.concatenate(here)).to(device)
        return distributed.gather(part).cpu().numpy()

    return metrics.Ranks(*(merged(name) for name in ("above", "tied", "positives", "sizes")))

"""Evaluation: each candidate encoded once, queries ranked chunk by chunk, no loop over queries.

Several processes deal out whole chunks and send each other vectors and ranks, which are whole numbers: any number of
processes gives the same metrics, to the last bit. Q queries, N candidates, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from negwise import distributed, metrics
from negwise.errors import InputError
from negwise.training.asked import Distinct
from negwise.training.batches import Ints, share
from negwise.training.judging import EvaluationSplit, Table

CHUNK_ITEMS = 1024


def evaluate(
    model: Any,
    split: EvaluationSplit,
    *,
    cutoffs: Iterable[int] = (5, 10),
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[], None] = lambda: None,
) -> metrics.MetricSummary:
    """Every metric of ``model`` on ``split``, dropout off; scores are dot products in float32 or better.

    ``autocast`` is entered for encoding; ``between`` is called between chunks and may raise to end the evaluation.
    Every rank calls it as often, so that ranks may agree in it.
    """
    return metrics.evaluate(rank_positives(model, split, autocast=autocast, between=between), cutoffs)


def rank_positives(
    model: Any,
    split: EvaluationSplit,
    *,
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    between: Callable[[], None] = lambda: None,
) -> metrics.Ranks:
    """The standing of every positive of ``split``, of which every metric is made; see `evaluate`."""
    with _judging(model):
        found = [split.ranks(*chunk) for chunk in asked(model, split, autocast, between)]
    return _merge(found, next(model.parameters()).device)


@contextmanager
def _judging(model: Any) -> Iterator[None]:
    """Dropout off and no gradients; afterwards the model is as it was."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


def asked(
    model: Any,
    split: EvaluationSplit,
    autocast: Callable[[], AbstractContextManager[Any]],
    between: Callable[[], None],
) -> Iterator[tuple[Tensor, Ints, Ints, Table]]:
    """This rank's chunks of queries: vectors (Q, D), positives (Q,), groups (Q,), and the vectors of all candidates."""
    if len(split.chosen) == 0:
        raise InputError("there is no query to evaluate; the split is empty")
    device = next(model.parameters()).device
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
            if part is not None:
                mine.append(_wide(model.encode_candidates(distinct.ids[part])))
        vectors = torch.cat(mine)
        table = Table(distinct, distributed.gather(vectors) if shared else vectors)
    for batch in _mine(batches):
        between()
        if batch is None:
            continue
        query, positives, groups = batch
        with autocast():
            queries = _wide(model.encode_queries(query.to(device), table.at))
        yield queries, positives.numpy(), groups.numpy(), table


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
    ``positives_popularity`` are mean counts in training, ``popularity`` (n_items,), of what is recommended and of what
    was right; None where training had none of the candidates.
    """
    counts = torch.zeros(len(popularity), dtype=torch.int64)
    right = torch.zeros(3, dtype=torch.float64)  # what was right: its popularity in all, how many; and the queries
    with _judging(model):
        for queries, positives, groups, table in asked(model, split, autocast, between):
            ids = split.top(queries, positives, groups, table, n).cpu()
            counts += torch.bincount(ids, minlength=len(popularity))
            wanted = split.right(positives, groups)
            right += torch.tensor([float(popularity[wanted].sum()), float(len(wanted)), float(len(positives))])
    device = next(model.parameters()).device
    counts, right = distributed.total(counts.to(device)).cpu(), distributed.total(right.to(device)).cpu()
    known = bool(popularity[split.candidates].any())
    mean = (counts.double() @ torch.from_numpy(popularity).double()) / counts.sum().clamp(min=1)
    return {
        "n": n,
        "queries": int(right[2]),
        "catalogue": len(split.candidates),
        "coverage": int((counts > 0).sum()) / len(split.candidates),
        "popularity": float(mean) if known else None,
        "positives_popularity": float(right[0] / right[1]) if known else None,
    }


def _wide(vectors: Tensor) -> Tensor:
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def _chunks(n: int, size: int) -> list[slice]:
    return [slice(start, start + size) for start in range(0, n, size)]


def _mine(chunks: Sequence[Any]) -> Sequence[Any]:
    """This rank's chunks: a run of them, so that all ranks' results in order are those of one process.

    Then None, where another rank has one more.
    """
    rank, world = distributed.rank(), distributed.world_size()
    mine = chunks[share(len(chunks), rank, world)]
    return [*mine, *[None] * (-(-len(chunks) // world) - len(mine))]


def _merge(found: Sequence[metrics.Ranks], device: torch.device) -> metrics.Ranks:
    def merged(name: str) -> Any:
        here = [np.zeros(0, np.int64), *(getattr(ranks, name) for ranks in found)]
        part: Tensor = torch.from_numpy(np.concatenate(here)).to(device)
        return distributed.gather(part).cpu().numpy()

    return metrics.Ranks(*(merged(name) for name in ("above", "tied", "positives", "sizes")))

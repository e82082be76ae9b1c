"""One step: draw, encode each distinct candidate once, look up, InfoNCE.

B queries, K negatives each, H places of a query, U distinct candidates, D width.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise import distributed
from negwise.draws import Key
from negwise.errors import InputError
from negwise.losses.info_nce import info_nce
from negwise.protocols import Negatives, Query, Sampler
from negwise.train.batches import Batch

CPU = torch.device("cpu")
DENSE = 8
"""A table of the whole catalogue beats a sort from about one id asked for in this many items on (measured on a CPU)."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """``ids`` (U,), sorted, each once; ``at(wanted)`` says where among them each of ``wanted`` is."""

    ids: Tensor
    places: Tensor | None = None  # (n_items,), where there is room for it

    @classmethod
    def of(cls, wanted: Tensor, n_items: int) -> Distinct:
        """The same as ``torch.unique(wanted)``, without the sort where the ids are many."""
        if wanted.numel() * DENSE < n_items:
            return cls(torch.unique(wanted))
        # Not there[wanted] = True, which takes longer and on a GPU waits for it.
        there = torch.zeros(n_items, dtype=torch.bool, device=wanted.device).index_fill_(0, wanted, True)
        return cls(there.nonzero()[:, 0], there.cumsum(0) - 1)

    def at(self, wanted: Tensor) -> Tensor:
        return torch.searchsorted(self.ids, wanted) if self.places is None else self.places[wanted]


class Asked:
    """What a step works on. No dataclass: Fabric takes frozen ones apart on their way to ``forward``, and fails."""

    def __init__(self, query: Query, positives: Tensor, negatives: Negatives) -> None:
        self.query, self.positives, self.negatives = query, positives, negatives

    @classmethod
    def of(cls, batch: Batch, drawn: Negatives, device: torch.device) -> Asked:
        """A batch and what was drawn for it, on ``device``."""

        def there(part: Tensor | None) -> Any:
            return None if part is None else part.to(device, non_blocking=True)

        ids, mask, log_q = there(drawn.ids), there(drawn.mask), there(drawn.log_q)
        negatives = Negatives(ids, mask, log_q, pool=there(drawn.pool), index=there(drawn.index))
        return cls(batch.query.to(device, non_blocking=True), there(batch.positives), negatives)


class Step(nn.Module):
    """``asked -> (loss (B,), wins (B,), pairs (B,))``, all in one ``forward``, the one that Fabric and DDP see.

    With ``correct`` the loss is corrected by the sampler's ``log_q``.
    """

    def __init__(self, model: nn.Module, n_items: int, correct: bool = False) -> None:
        super().__init__()
        self.model: Any = model
        self.n_items, self.correct = n_items, correct

    def forward(self, asked: Asked) -> tuple[Tensor, Tensor, Tensor]:
        query, positives, negatives = asked.query, asked.positives, asked.negatives
        drawn, index = negatives.ids, None
        if negatives.pool is not None and negatives.pool.numel() <= drawn.numel():  # a small K needs less than the pool
            drawn, index = negatives.pool, negatives.index
        wanted = [positives, drawn.flatten()] + ([query.items.flatten()] if self.model.needs_items else [])
        distinct = Distinct.of(torch.cat(wanted), self.n_items)
        vectors = self.model.encode_candidates(distinct.ids)  # (U, D)

        def encoded(ids: Tensor) -> Tensor:
            # The gradient of an embedding adds up rows faster than that of indexing does.
            return F.embedding(distinct.at(ids), vectors)

        place = distinct.at(drawn)
        result = info_nce(
            self.model.encode_queries(query, encoded),
            encoded(positives),
            vectors,
            ids=place if index is None else place[index],
            mask=negatives.mask,
            log_q=negatives.log_q if self.correct else None,
            reduction="none",
        )
        assert result.wins is not None and result.pairs is not None
        return result.loss, result.wins, result.pairs


def draw(sampler: Sampler, batch: Batch, k: float, key: Key, device: torch.device = CPU) -> Negatives:
    """The negatives of ``batch``: what its rows would get in one process, however many there are.

    They are drawn on the CPU, from where `Asked.of` moves them: the same bits as on a GPU, and on an H200 five times as
    fast. ``device`` is where ranks can speak to each other.
    """
    numbered = Key(key.seed, key.step, batch.numbers)
    more = {}
    if distributed.world_size() > 1 and reads_batch(sampler):
        more["batch"] = distributed.gather(batch.positives[: batch.counted].to(device)).cpu()
    return sampler(batch.positives, k, numbered, owner=batch.groups, **more)


def reads_batch(sampler: Sampler) -> bool:
    """Whether ``sampler`` draws from the batch, which several processes then have to put together."""
    if "batch" in inspect.signature(sampler).parameters:
        return True
    for part in (*getattr(sampler, "parts", ()), getattr(sampler, "source", None)):
        if part is not None and callable(part) and reads_batch(part):
            raise InputError(
                f"{type(part).__name__} within {type(sampler).__name__} would draw from the rows of one process alone. "
                f"Train in one process, or with {type(part).__name__} by itself"
            )
    return False


TOTALS = ("loss", "log_k1", "wins", "pairs", "queries")


def totals(loss: Tensor, wins: Tensor, pairs: Tensor) -> Tensor:
    """Sums over rows (B,), as (5,) float64, in the order of `TOTALS`; they add up over steps and ranks.

    ``log_k1`` is the sum of log(K_b + 1): eq. 2 holds for each row with its own K_b, and so on average.
    """
    counts = pairs.double()
    rows = counts.new_full((), len(counts))  # new_tensor would wait for the GPU
    parts = (loss.detach().double().sum(), counts.log1p().sum(), wins.double().sum(), counts.sum(), rows)
    return torch.stack(parts)

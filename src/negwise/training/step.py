"""One step: draw, encode each distinct candidate once, look up, InfoNCE. B queries, U distinct candidates, D width."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise import distributed
from negwise.draws import Key
from negwise.errors import InputError
from negwise.losses.info_nce import info_nce
from negwise.protocols import Draw, Negatives, Planner, Sampler
from negwise.training.asked import StepInputs
from negwise.training.batches import Batch

CPU = torch.device("cpu")


class TrainingStep(nn.Module):
    """``asked -> (loss (B,), wins (B,), pairs (B,))``, all in one ``forward``, the one that Fabric and DDP see.

    Where negatives come with ``log_q`` the loss is corrected by it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model

    def forward(self, asked: StepInputs) -> tuple[Tensor, Tensor, Tensor]:
        model, negatives = self.model, asked.negatives
        vectors = model.table if asked.candidates is None else model.encode_candidates(asked.candidates)  # (U, D)

        def item_vectors(places: Tensor) -> Tensor:
            # The gradient of an embedding adds up rows faster than that of indexing does.
            return F.embedding(places, vectors)

        named: dict[str, Any] = {"ids": negatives}
        if isinstance(negatives, Negatives):
            named = {"ids": negatives.ids, "mask": negatives.mask, "log_q": negatives.log_q}
        sides = model.encode_queries(asked.query, item_vectors), item_vectors(asked.positives), vectors
        if asked.candidates is None:
            sides = in_autocast_dtype(*sides)
        result = info_nce(*sides, **named, reduction="none")
        assert result.wins is not None and result.pairs is not None
        return result.loss, result.wins, result.pairs


def in_autocast_dtype(query: Tensor, positive: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What scores are products of, in the dtype in which autocast multiplies by weights, which a table is one of."""
    kind = query.device.type
    if not torch.is_autocast_enabled(kind):
        return query, positive, table
    dtype = torch.get_autocast_dtype(kind)

    def cast(vectors: Tensor) -> Tensor:
        return vectors.to(dtype) if vectors.dtype == torch.float32 else vectors  # as autocast: float64 stays

    return cast(query), cast(positive), cast(table)


def draw(sampler: Sampler, batch: Batch, k: float, key: Key, device: torch.device = CPU) -> Negatives:
    """The negatives of ``batch``: what its rows would get in one process, however many there are.

    They are drawn on the CPU and moved from there: the same bits as on a GPU, and on an H200 five times as
    fast. ``device`` is where ranks can speak to each other.
    """
    numbered = Key(key.seed, key.step, batch.numbers)
    more = {}
    if distributed.world_size() > 1 and reads_batch(sampler):
        more["batch"] = distributed.gather(batch.positives[: batch.counted].to(device)).cpu()
    return sampler(batch.positives, k, numbered, owner=batch.groups, **more)


def plan(sampler: Planner, batch: Batch, k: float, key: Key) -> Draw:
    """The same negatives, to be drawn where they are looked up."""
    drawn = sampler.plan(batch.positives, k, Key(key.seed, key.step, batch.numbers), owner=batch.groups)
    return replace(drawn, when=torch.tensor(key.step))


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


COUNTS = ("loss", "log_k1", "wins", "pairs", "queries")


def count(loss: Tensor, wins: Tensor, pairs: Tensor, counted: Tensor) -> Tensor:
    """Sums over rows (B,), as (5,) float64, in the order of `COUNTS`; they add up over steps and ranks.

    ``counted`` (): how many rows there are; where there are none, the row that stands in for them is left out.
    ``log_k1`` is the sum of log(K_b + 1): eq. 2 holds for each row with its own K_b, and so on average.
    """
    counts = pairs.double()
    parts = (loss.detach().double().sum(), counts.log1p().sum(), wins.double().sum(), counts.sum())
    return torch.stack([*(torch.where(counted > 0, part, 0) for part in parts), counted])

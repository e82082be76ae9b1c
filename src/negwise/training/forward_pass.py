"""One training step: its inputs, the forward pass with the loss, and the counts that come out of it.

Each distinct candidate of a step is encoded once; everything else refers to it by its place. All of that follows from
ids, so it is prepared on the CPU, ahead of the step, and the GPU waits for nothing. Shapes: B rows (P queries where
they are read off sequences), K negatives each, H places of a query, U distinct candidates, D width.

The backward pass and the optimizer's step are in `Run.update_weights`, in ``loop.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.losses import info_nce
from negwise.losses.reference import count_hits, count_wins
from negwise.losses.result import log_k1
from negwise.metrics.model_ranking import DistinctIds
from negwise.protocols import Draw, Loss, Negatives, Query, TableModel

COUNTS = ("loss", "log_k1", "wins", "pairs", "given_wins", "given_pairs", "hits", "rows", "queries")
"""What `sum_rows` adds up, in this order."""


class StepInputs:
    """What a step works on. Not a dataclass: Fabric takes frozen ones apart on their way to ``forward``, and fails.

    ``candidates`` (U,) are the ids to encode. ``positives`` (B,), ``negatives`` (B, K) and, for a model that needs
    them, ``query.items`` are places among those. If ``candidates`` is None, the model has an embedding table: places
    are ids, and ``negatives`` may be a `Draw`, whose ids the loss draws. A row without negatives has no loss.
    ``counted`` (), float64, is the number of rows that enter loss and sums; rows that pad a batch do not. ``share`` ()
    is the factor of each row's loss.
    """

    def __init__(
        self,
        query: Query,
        positives: Tensor,
        negatives: Negatives | Draw,
        candidates: Tensor | None = None,
        counted: Tensor | None = None,
        share: Tensor | None = None,
    ) -> None:
        self.query, self.positives, self.negatives, self.candidates = query, positives, negatives, candidates
        rows = float(len(positives))
        self.counted = torch.tensor(rows, dtype=torch.float64) if counted is None else counted
        self.share = torch.tensor(1 / max(rows, 1.0), dtype=torch.float64) if share is None else share

    @classmethod
    def of(
        cls, query: Query, positives: Tensor, drawn: Negatives | Draw, model: Any, n_items: int, correct: bool = False
    ) -> StepInputs:
        """From ids to places; with ``correct`` the loss is corrected by the sampler's ``log_q``."""
        if isinstance(drawn, Draw):
            return cls(query, positives, drawn)
        if correct and drawn.log_q is None:
            raise InputError(
                "correct=True, and the sampler gave no log_q to correct with, as Popularity(log_q=False), Hardest and "
                "Given do not. Take a sampler that does, or correct=False"
            )
        log_q = drawn.log_q if correct else None
        if isinstance(model, TableModel):
            return cls(query, positives, Negatives(drawn.ids, drawn.mask, log_q, given=drawn.given))
        ids, index = drawn.ids, None
        if drawn.pool is not None and 0 < drawn.pool.numel() <= ids.numel():  # a small K needs less than the pool
            ids, index = drawn.pool, drawn.index
        wanted = [positives, ids.flatten()] + ([query.items.flatten()] if model.needs_items else [])
        distinct = DistinctIds.of(torch.cat(wanted), n_items)
        place = distinct.places(ids)
        negatives = Negatives(place if index is None else place[index], drawn.mask, log_q, given=drawn.given)
        if model.needs_items:
            query = Query(distinct.places(query.items), query.mask, query.users, query.positions)
        return cls(query, distinct.places(positives), negatives, distinct.ids)

    @property
    def width(self) -> int:
        """Negative slots of a row: K, padded."""
        return self.negatives.width if isinstance(self.negatives, Draw) else self.negatives.ids.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor, by name."""
        query, drawn = self.query, self.negatives
        named = {
            "items": query.items, "item_mask": query.mask, "users": query.users, "positions": query.positions,
            "positives": self.positives, "candidates": self.candidates, "counted": self.counted, "share": self.share,
        }  # fmt: skip
        if isinstance(drawn, Draw):
            named |= {name: getattr(drawn, name) for name in ("numbers", "counts", "owners", "allowed", "when")}
        else:
            named |= {"negatives": drawn.ids, "mask": drawn.mask, "log_q": drawn.log_q, "given": drawn.given}
        return {name: value for name, value in named.items() if value is not None}

    def with_tensors(self, named: Mapping[str, Tensor], width: int | None = None) -> StepInputs:
        """The same with other `tensors`; ``width``: with room for that many negatives."""
        query = Query(named["items"], named["item_mask"], named["users"], named.get("positions"))
        if isinstance(self.negatives, Draw):
            own: dict[str, Any] = {name: named[name] for name in ("numbers", "counts", "owners", "allowed")}
            drawn: Negatives | Draw = replace(
                self.negatives, **own, positives=named["positives"], when=named.get("when"), width=width or self.width
            )
        else:
            drawn = Negatives(named["negatives"], named["mask"], named.get("log_q"), given=named.get("given"))
        return StepInputs(query, named["positives"], drawn, named.get("candidates"), named["counted"], named["share"])

    def map(self, change: Callable[[Tensor], Tensor]) -> StepInputs:
        return self.with_tensors({name: change(value) for name, value in self.tensors().items()})

    def to(self, device: torch.device) -> StepInputs:
        return self.map(lambda part: part.to(device, non_blocking=True))


class RowResults(NamedTuple):
    """Loss, wins and pairs of each row (B,).

    ``given_wins`` and ``given_pairs`` are over the negatives that came with the data, None without. ``hits`` and
    ``rows`` are over drawn negatives alone; None for a loss that does not count them.
    """

    loss: Tensor
    wins: Tensor
    pairs: Tensor
    given_wins: Tensor | None = None
    given_pairs: Tensor | None = None
    hits: Tensor | None = None
    rows: Tensor | None = None


class TrainingStep(nn.Module):
    """``inputs -> RowResults`` in one ``forward``, the one that Fabric and DDP see.

    Where negatives come with ``log_q``, the loss is corrected by it.
    """

    def __init__(self, model: nn.Module, loss: Loss = info_nce) -> None:
        super().__init__()
        self.model: Any = model
        self.loss = loss

    def forward(self, inputs: StepInputs) -> RowResults:
        model, negatives = self.model, inputs.negatives
        vectors = model.table if inputs.candidates is None else model.encode_candidates(inputs.candidates)  # (U, D)

        def item_vectors(places: Tensor) -> Tensor:
            # The gradient of an embedding adds up rows faster than that of indexing does.
            return F.embedding(places, vectors)

        sides = model.encode_queries(inputs.query, item_vectors), item_vectors(inputs.positives), vectors
        if inputs.candidates is None:
            sides = in_autocast_dtype(*sides)
        if isinstance(negatives, Draw):
            result = self.loss(*sides, ids=negatives, reduction="none")
        else:
            more = {"mask": negatives.mask, "log_q": negatives.log_q}
            result = self.loss(*sides, ids=negatives.ids, **more, reduction="none")
        if isinstance(negatives, Draw) or negatives.given is None:
            hits, rows = getattr(result, "hits", None), getattr(result, "rows", None)
            return RowResults(result.loss, result.wins, result.pairs, hits=hits, rows=rows)
        return RowResults(result.loss, result.wins, result.pairs, *counts_apart(*sides, negatives))


@torch.no_grad()
def counts_apart(
    query: Tensor, positive: Tensor, table: Tensor, negatives: Negatives
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Wins and pairs (B,) over negatives that came with the data, hits and rows (B,) over drawn ones.

    The first ``given`` slots of each row came with the data.
    """
    assert negatives.given is not None
    slot = torch.arange(negatives.ids.shape[1], device=query.device)
    is_given = (slot < negatives.given[:, None]) & negatives.mask
    is_drawn = ~is_given & negatives.mask
    scores = torch.einsum("bd,bkd->bk", query.float(), F.embedding(negatives.ids, table).float())
    own = (query.float() * positive.float()).sum(1)
    return (
        count_wins(own, scores, is_given),
        is_given.sum(1),
        count_hits(own, scores, is_drawn),
        is_drawn.any(1).long(),
    )


def in_autocast_dtype(query: Tensor, positive: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The three in the dtype in which autocast multiplies by weights, which a table is one of."""
    kind = query.device.type
    if not torch.is_autocast_enabled(kind):
        return query, positive, table
    dtype = torch.get_autocast_dtype(kind)

    def cast(vectors: Tensor) -> Tensor:
        return vectors.to(dtype) if vectors.dtype == torch.float32 else vectors  # as autocast: float64 stays

    return cast(query), cast(positive), cast(table)


def sum_rows(rows: RowResults, counted: Tensor) -> Tensor:
    """Sums over rows (B,), as (9,) float64, in the order of `COUNTS`; they add up over steps and ranks.

    ``counted`` () is the number of rows; where it is 0, the row that stands in for them is left out. ``log_k1`` is the
    sum of log(K_b + 1): eq. 2 of the paper holds for each row with its own K_b, and so on average.
    """
    nothing = rows.pairs.new_zeros((), dtype=torch.float64)
    parts = (
        rows.loss.detach(),
        log_k1(rows.pairs),
        rows.wins,
        rows.pairs,
        rows.given_wins,
        rows.given_pairs,
        rows.hits,
        rows.rows,
    )
    sums = (nothing if part is None else part.double().sum() for part in parts)
    return torch.stack([*(torch.where(counted > 0, one, 0) for one in sums), counted])

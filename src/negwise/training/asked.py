"""What a step works on: each distinct candidate once, and everything else by its place among them.

B rows (P queries where they are read off sequences), K negatives each, H places of a query, U distinct candidates.
All of it follows from ids, so it is made on the CPU, ahead of the step, and the GPU waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from negwise.errors import InputError
from negwise.protocols import Draw, Negatives, Query, TableModel

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
        # Not there[wanted] = True, which takes longer.
        there = torch.zeros(n_items, dtype=torch.bool, device=wanted.device).index_fill_(0, wanted, True)
        return cls(there.nonzero()[:, 0], there.cumsum(0) - 1)

    def at(self, wanted: Tensor) -> Tensor:
        return torch.searchsorted(self.ids, wanted) if self.places is None else self.places[wanted]


class StepInputs:
    """Work for `Step`. No dataclass: Fabric takes frozen ones apart on their way to ``forward``, and fails.

    ``candidates`` (U,) are the ids to encode; ``positives`` (B,), ``negatives`` (B, K) and, for a model that needs
    them, ``query.items`` are places among those. None: the model has a table, and places are ids, which may also be
    drawn when they are read. A row without negatives has no loss. ``counted`` (), as float64, is how many rows the
    batch has, without those that stand in or fill up, and ``share`` () what a row's loss is multiplied by.
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
        """From ids to places; with ``correct`` the loss will be corrected by the sampler's ``log_q``."""
        if isinstance(drawn, Draw):
            return cls(query, positives, drawn)
        if correct and drawn.log_q is None:
            raise InputError(
                "correct=True, and the sampler gave no log_q to correct with, as Popularity(log_q=False), Hardest and "
                "Given do not. Take a sampler that does, or correct=False"
            )
        log_q = drawn.log_q if correct else None
        if isinstance(model, TableModel):
            return cls(query, positives, Negatives(drawn.ids, drawn.mask, log_q))
        ids, index = drawn.ids, None
        if drawn.pool is not None and drawn.pool.numel() <= ids.numel():  # a small K needs less than the pool
            ids, index = drawn.pool, drawn.index
        wanted = [positives, ids.flatten()] + ([query.items.flatten()] if model.needs_items else [])
        distinct = Distinct.of(torch.cat(wanted), n_items)
        place = distinct.at(ids)
        negatives = Negatives(place if index is None else place[index], drawn.mask, log_q)
        if model.needs_items:
            query = Query(distinct.at(query.items), query.mask, query.users, query.positions)
        return cls(query, distinct.at(positives), negatives, distinct.ids)

    @property
    def width(self) -> int:
        """K, as far as memory goes."""
        return self.negatives.width if isinstance(self.negatives, Draw) else self.negatives.ids.shape[1]

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor there is, by name."""
        query, drawn = self.query, self.negatives
        named = {
            "items": query.items, "seen": query.mask, "users": query.users, "positions": query.positions,
            "positives": self.positives, "candidates": self.candidates, "counted": self.counted, "share": self.share,
        }  # fmt: skip
        if isinstance(drawn, Draw):
            named |= {name: getattr(drawn, name) for name in ("numbers", "counts", "owners", "allowed", "when")}
        else:
            named |= {"negatives": drawn.ids, "mask": drawn.mask, "log_q": drawn.log_q}
        return {name: value for name, value in named.items() if value is not None}

    def with_tensors(self, named: Mapping[str, Tensor], width: int | None = None) -> StepInputs:
        """The same with other `tensors`; ``width``: with room for so many negatives."""
        query = Query(named["items"], named["seen"], named["users"], named.get("positions"))
        if isinstance(self.negatives, Draw):
            own: dict[str, Any] = {name: named[name] for name in ("numbers", "counts", "owners", "allowed")}
            drawn: Negatives | Draw = replace(
                self.negatives, **own, positives=named["positives"], when=named.get("when"), width=width or self.width
            )
        else:
            drawn = Negatives(named["negatives"], named["mask"], named.get("log_q"))
        return StepInputs(query, named["positives"], drawn, named.get("candidates"), named["counted"], named["share"])

    def map(self, change: Callable[[Tensor], Tensor]) -> StepInputs:
        return self.with_tensors({name: change(value) for name, value in self.tensors().items()})

    def to(self, device: torch.device) -> StepInputs:
        return self.map(lambda part: part.to(device, non_blocking=True))

"""Hard negatives: the highest scores among more candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Negatives, Query, Sampler
from negwise.samplers.draw_request import (
    DrawRequest,
    OnShortage,
    check_on_shortage,
    prefix_mask,
    resolve_shortage,
    scale_words,
    slot_words,
)
from negwise.samplers.lists import check_positive_int

Score = Callable[..., Tensor]
"""``score(ids (B, M), positives (B,)) -> (B, M)``; a higher score is harder. It gets the ``query`` too, if any."""


@dataclass(frozen=True, eq=False)
class Hardest:
    """The K ids with the highest ``score`` among ``candidates`` ids per row from ``source``, hardest first.

    An id that is drawn twice counts once, so a row with fewer than K distinct ids is short. The result depends on
    the scores, so there is no ``log_q``.

    How to choose ``candidates``: a few times K. The hardest of very many are often false negatives.
    """

    source: Sampler
    candidates: int
    score: Score
    on_shortage: OnShortage = "mask"
    draws_ahead: ClassVar[bool] = False
    """The result depends on the current model, so it cannot be drawn ahead of the step."""

    def __post_init__(self) -> None:
        check_on_shortage(self.on_shortage)
        check_positive_int("Hardest: candidates", self.candidates)

    @property
    def parts(self) -> tuple[Sampler, ...]:
        """The samplers it is made of."""
        return (self.source,)

    def __call__(
        self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None, query: Query | None = None
    ) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        drawn = self.source(positives, self.candidates, key, owner=owner)
        scores = self.score(drawn.ids, request.positives, *([] if query is None else [query]))
        if scores.shape != drawn.ids.shape:
            raise InputError(f"Hardest: score gave shape {tuple(scores.shape)}, expected {tuple(drawn.ids.shape)}")
        if bool(scores.isnan().any()):
            raise InputError("Hardest: score gave NaN, expected numbers that can be sorted; check the model")
        fresh = drawn.mask & ~is_repeated(drawn.ids, drawn.mask)
        order = scores.detach().masked_fill(~fresh, -torch.inf).argsort(dim=1, descending=True, stable=True)
        # A candidate with a score of -inf would mix with the masked ones, so unmasked candidates go first.
        order = order.gather(1, fresh.gather(1, order).byte().argsort(dim=1, descending=True, stable=True))
        available = fresh.sum(1)
        filled = resolve_shortage(request.wanted, available, self.on_shortage)
        slot = torch.arange(request.width, device=positives.device)
        again = scale_words(*slot_words(request.key, request.width, Stream.REPEAT), available[:, None])
        rank = torch.where(slot < available[:, None], slot, again).clamp(max=self.candidates - 1)
        mask = prefix_mask(filled, request.width)
        return Negatives(drawn.ids.gather(1, order.gather(1, rank)) * mask, mask, None, drawn.removed)


def is_repeated(ids: Tensor, mask: Tensor) -> Tensor:
    """Whether each slot (B, M) repeats the id of an earlier unmasked slot of its row."""
    values, order = torch.where(mask, ids, -1).sort(dim=1, stable=True)
    again = torch.zeros_like(mask)
    again[:, 1:] = values[:, 1:] == values[:, :-1]
    return torch.zeros_like(mask).scatter(1, order, again) & mask

"""The loss by name: InfoNCE, or a loss on scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from negwise.errors import InputError
from negwise.losses import CorrectedLoss, bce, bpr, debiased, decoupled, gbce, info_nce, scores
from negwise.protocols import Draw, Loss
from negwise.requests.specs import parse_loss

FUNCTIONS: Mapping[str, Callable[..., CorrectedLoss]] = {
    "bpr": bpr,
    "bce": bce,
    "gbce": gbce,
    "decoupled": decoupled,
    "debiased": debiased,
}
TAU_PLUS = 0.1


@dataclass(frozen=True)
class ScoreLoss:
    """A loss on scores, called as `info_nce` is: the scores are made first."""

    name: str
    options: tuple[tuple[str, float], ...] = ()

    def __call__(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor,
        *,
        ids: Tensor | Draw,
        mask: Tensor | None = None,
        log_q: Tensor | None = None,
        reduction: str = "mean",
    ) -> CorrectedLoss:
        if log_q is not None:
            raise InputError(
                f"correct=True corrects InfoNCE by the sampler's log_q; {self.name} has no such correction."
            )
        found = scores(query, positive, negatives, ids=ids, mask=mask)
        return FUNCTIONS[self.name](*found, reduction=reduction, **dict(self.options))


def make_loss(text: str, n_items: int, model: Any) -> Loss:
    """The loss ``text``, as ``"info-nce"`` or ``"gbce:t=0.75"``.

    gBCE gets the size of the catalogue, the debiased loss the smallest score of ``model``.
    """
    spec = parse_loss(text)
    if spec.name == "info-nce":
        return info_nce
    options: dict[str, float] = dict(spec.options)
    if spec.name == "gbce":
        options["catalogue"] = n_items
    if spec.name == "debiased":
        temperature = getattr(model, "temperature", None)
        options.setdefault("tau_plus", TAU_PLUS)
        options["min_score"] = -1 / temperature if temperature else -math.inf
    return ScoreLoss(spec.name, tuple(sorted(options.items())))

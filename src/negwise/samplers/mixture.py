"""A mixture of samplers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from negwise.draws import Key, Stream
from negwise.errors import InputError
from negwise.protocols import Negatives, Query, Sampler
from negwise.samplers.draw_request import DrawRequest, draw_part, slot_words


@dataclass(frozen=True, eq=False)
class Mixture:
    """Each slot comes from part i with probability ``weights[i]``, among the parts that can fill the slot.

    ``log_q = log sum_i w_i q_i(id)``, with the weights renormalised over the parts that can fill the slot. It is
    None if a part gives none (`Given`, `Hardest`, ``log_q=False``). A nested mixture is flattened: its weights are
    multiplied. Each part follows its own ``on_shortage``. A slot that no part fills is masked.

    >>> from negwise.samplers import Popularity, Uniform
    >>> half = Mixture([Uniform(4), Popularity(torch.tensor([1, 1, 1, 5]))], weights=[0.5, 0.5])
    >>> negatives = half(torch.tensor([0]), k=1, key=Key(seed=0, step=3))
    >>> negatives.ids, negatives.log_q.exp()  # (1/3 + 1/7) / 2
    (tensor([[1]]), tensor([[0.2381]]))
    """

    parts: Sequence[Sampler]
    weights: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.weights) or not self.parts:
            raise InputError(
                f"Mixture: {len(self.weights)} weights, {len(self.parts)} parts; expected one weight per part"
            )
        weights = torch.tensor(self.weights, dtype=torch.float64)
        if not bool(weights.isfinite().all()) or bool((weights <= 0).any()):
            raise InputError(f"Mixture: weights {list(self.weights)}, expected positive numbers")
        # Two levels would choose by the same random words, and some parts would never be chosen.
        flat = [
            (part, weight * share / sum(shares))
            for whole, weight in zip(self.parts, self.weights, strict=True)
            for inner, shares in [(whole.parts, whole.weights) if isinstance(whole, Mixture) else ([whole], [1.0])]
            for part, share in zip(inner, shares, strict=True)
        ]
        object.__setattr__(self, "parts", tuple(part for part, _ in flat))
        object.__setattr__(self, "weights", tuple(weight for _, weight in flat))

    @property
    def draws_ahead(self) -> bool:
        """Whether every part can be drawn from ahead of its step."""
        return all(getattr(part, "draws_ahead", True) for part in self.parts)

    def __call__(
        self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None, query: Query | None = None
    ) -> Negatives:
        request = DrawRequest.of(positives, k, key)
        # The same key gives every part the same counts, so a part's mask shows which of the wanted slots it fills.
        drawn = [draw_part(part, positives, k, key, owner=owner, query=query) for part in self.parts]
        able = torch.stack([one.mask for one in drawn], -1)  # (B, K, parts)
        weights = torch.tensor(self.weights, dtype=torch.float64, device=positives.device)
        share = able * weights
        share = share / share.sum(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
        hi, lo = slot_words(request.key, request.width, Stream.PART)
        chance = ((hi << 21) | (lo >> 11)).double() * 2.0**-53
        part = (chance[..., None] >= share.cumsum(-1)[..., :-1]).sum(-1, keepdim=True)
        mask = able.any(-1)
        ids = torch.stack([one.ids for one in drawn], -1).gather(-1, part).squeeze(-1) * mask
        log_q = self._log_q(drawn, ids, request.positives, owner, share)
        return Negatives(
            ids, mask, None if log_q is None else log_q.masked_fill(~mask, 0), mean_removed(drawn, weights)
        )

    def _log_q(
        self, drawn: Sequence[Negatives], ids: Tensor, positives: Tensor, owner: Tensor | None, share: Tensor
    ) -> Tensor | None:
        # A part without log_q leaves the mixture without one: it has no formula (Given), or log_q=False.
        if any(one.log_q is None for one in drawn) or not all(hasattr(part, "log_prob") for part in self.parts):
            return None
        each = [part.log_prob(ids, positives, owner=owner) for part in self.parts]  # type: ignore[attr-defined]
        return (torch.stack(each, -1).double() + share.log()).logsumexp(-1).float()


def mean_removed(drawn: Sequence[Negatives], weights: Tensor) -> Tensor | None:
    """The weighted mean of the parts' ``removed`` (B,); None if a part has none."""
    shares = [one.removed for one in drawn]
    if any(share is None for share in shares):
        return None
    stacked = torch.stack([share for share in shares if share is not None], -1)
    return (stacked * (weights / weights.sum())).sum(-1).float()

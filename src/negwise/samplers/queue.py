"""A queue of past keys, first in, first out (He et al., "Momentum contrast", 2020)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Negatives
from negwise.samplers.draw_request import DrawRequest, Impl, OnShortage, check_on_shortage, resolve_impl
from negwise.samplers.exclusions import ExclusionLookup, Exclusions
from negwise.samplers.lists import check_ids, check_positive_int
from negwise.samplers.without_replacement import SharedCandidates


class Queue:
    """The last ``capacity`` ids that were pushed and, with ``width``, their vectors (capacity, width).

    A call draws K of them without replacement, without the row's positive and its exclusions. ``index`` points into
    ``vectors``. To use the whole queue at once, as MoCo does, pass ``vectors`` as shared negatives and
    ``allowed(positives)`` as their mask. That needs no (B, K) table of ids.

    Only `push` changes a queue. With several processes, push the gathered ids and vectors on every process.
    """

    draws_ahead = False
    """The result depends on the ids that were pushed, so it cannot be drawn ahead of the step."""

    def __init__(
        self,
        capacity: int,
        width: int | None = None,
        *,
        exclude: Exclusions | None = None,
        on_shortage: OnShortage = "mask",
        impl: Impl = "auto",
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        check_on_shortage(on_shortage)
        check_positive_int("Queue: capacity", capacity)
        self.capacity, self.on_shortage, self.impl = capacity, on_shortage, impl
        self._exclusions = ExclusionLookup(exclude)
        self.pushed = 0
        self._ids = torch.zeros(capacity, dtype=torch.int64, device=device)
        self._vectors = None if width is None else torch.zeros(capacity, width, dtype=dtype, device=device)

    def __len__(self) -> int:
        return min(self.pushed, self.capacity)

    @property
    def ids(self) -> Tensor:
        """The ids in the queue (len,), in no particular order."""
        return self._ids[: len(self)]

    @property
    def vectors(self) -> Tensor:
        """The vectors of `ids` (len, width), without gradient.

        This is the queue's own memory, and the reference loss keeps it until the backward pass. So `push` after
        ``backward()``, or pass ``vectors.clone()``.
        """
        if self._vectors is None:
            raise InputError("this queue holds ids only, expected vectors; make it with Queue(capacity, width=D)")
        return self._vectors[: len(self)]

    @torch.no_grad()
    def push(self, ids: Tensor, vectors: Tensor | None = None) -> None:
        """Append ``ids`` (N,) with their ``vectors`` (N, width). The oldest ones are dropped."""
        ids = check_ids("ids", ids)
        if ids.ndim != 1:
            raise InputError(f"Queue.push: ids have shape {tuple(ids.shape)}, expected (N,)")
        wanted = None if self._vectors is None else (len(ids), self._vectors.shape[1])
        came = None if vectors is None else tuple(vectors.shape)
        if came != wanted:
            raise InputError(f"Queue.push: vectors of shape {came}, expected {wanted}")
        # If the batch is longer than the queue, only its end stays.
        kept = min(len(ids), self.capacity)
        at = torch.arange(self.pushed + len(ids) - kept, self.pushed + len(ids)) % self.capacity
        at = at.to(self._ids.device)
        self._ids[at] = ids[len(ids) - kept :].to(self._ids)
        if self._vectors is not None and vectors is not None:
            self._vectors[at] = vectors[len(ids) - kept :].to(self._vectors)
        self.pushed += len(ids)

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives:
        resolve_impl(self.impl, positives.device)
        request = DrawRequest.of(positives, k, key)
        return self._candidates(request.positives, owner).negatives(request, self.on_shortage, self.impl)

    def allowed(self, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Whether each row may have each of `ids` as a negative, (B, len)."""
        return self._candidates(positives.long(), owner).allowed

    def log_prob(self, ids: Tensor, positives: Tensor, *, owner: Tensor | None = None) -> Tensor:
        """Log probability (B, K) that a slot of row b holds ``ids[b, k]``, given the queue."""
        return self._candidates(positives.long(), owner).log_prob(ids)

    def _candidates(self, positives: Tensor, owner: Tensor | None) -> SharedCandidates:
        exclusions, owners = self._exclusions(positives, owner)
        return SharedCandidates.of(self.ids.to(positives.device), positives, exclusions, owners)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: tensors and one number."""
        state: dict[str, Any] = {"pushed": self.pushed, "ids": self._ids.clone()}
        return state if self._vectors is None else {**state, "vectors": self._vectors.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the `state_dict` of a queue of the same capacity and width."""
        mine = {name: tuple(value.shape) for name, value in self.state_dict().items() if name != "pushed"}
        came = {name: tuple(value.shape) for name, value in state.items() if name != "pushed"}
        if mine != came or "pushed" not in state:
            raise InputError(f"Queue: the state has {came}, expected {mine} and 'pushed'")
        pushed = int(state["pushed"])
        if pushed < 0:
            raise InputError(f"Queue: the state has pushed={pushed}, expected the number of pushed ids, 0 or more")
        self.pushed = pushed
        self._ids.copy_(state["ids"])
        if self._vectors is not None:
            self._vectors.copy_(state["vectors"])

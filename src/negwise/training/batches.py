"""Which examples a step sees, what is prepared of them on the CPU, and the thread that prepares one step ahead.

Everything here is a function of (seed, step) and of K, so that a run can resume at any step: the order of an epoch from
(seed, epoch), the rows of the global batch from the order, a rank's rows from the global batch. B rows, P queries.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from negwise import distributed
from negwise.draws import Key
from negwise.errors import InputError
from negwise.protocols import Draw, Negatives, Planner, Query, Sampler, StatefulSampler, TableModel
from negwise.training.forward_pass import StepInputs

Ints = NDArray[np.int64]
MaskItems = Callable[[Query, Key], tuple[Query, Tensor]]
"""Masks P items of sequences: the query with those positions (``positions``), and the items that were there (P,)."""
CPU = torch.device("cpu")
T = TypeVar("T")


class TrainingExamples(Protocol):
    """Examples by number: ``batch(indices)`` gives the queries, positives (B,) and groups (B,), all int64."""

    def __len__(self) -> int: ...

    def batch(self, indices: Ints, /) -> tuple[Query, Tensor, Tensor]: ...


@dataclass(frozen=True)
class EpochOrder:
    """Every example once an epoch, in a new order each time, ``batch_size`` at a step; an epoch's last may be fewer."""

    examples: int
    batch_size: int
    seed: int

    def __post_init__(self) -> None:
        if self.examples < 1 or self.batch_size < 1:
            raise InputError(f"{self.examples} examples in batches of {self.batch_size}; expected 1 or more of each")

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // self.batch_size)

    def batch(self, step: int) -> Ints:
        """The examples of the global batch of ``step``."""
        epoch, place = divmod(step, self.steps_per_epoch)
        start = place * self.batch_size
        return _permutation(self.examples, self.seed, epoch)[start : start + self.batch_size]


@lru_cache(maxsize=2)
def _permutation(n: int, seed: int, epoch: int) -> Ints:
    return np.random.default_rng([seed, epoch]).permutation(n)


@dataclass(frozen=True, eq=False)
class PreparedBatch:
    """A rank's queries. ``positives``, ``groups`` and ``numbers``, the numbers of the rows, are (P,) int64.

    ``counted`` of them enter loss and sums: all, or none where the only row is a stand-in.
    """

    query: Query
    positives: Tensor
    groups: Tensor
    numbers: Tensor
    counted: int


def rank_slice(rows: int, rank: int, world: int) -> slice:
    """The part of ``rows`` that belongs to ``rank``: contiguous, and as long as another's or one shorter."""
    return slice(rows * rank // world, rows * (rank + 1) // world)


def load_batch(
    examples: TrainingExamples, rows: Ints, mine: slice, key: Key, mask_items: MaskItems | None
) -> PreparedBatch:
    """This rank's part of the global batch of examples ``rows``, at the step of ``key``, on the CPU.

    A rank without rows computes the first one, which is not counted: every rank takes part in every step. In sequences
    of H places, the query at place h of row b has number b * H + h.
    """
    has_rows = mine.stop > mine.start
    taken = mine if has_rows else slice(0, 1)
    query, positives, groups = examples.batch(rows[taken])
    numbers = torch.arange(taken.start, taken.stop)
    if mask_items is not None:
        query, positives = mask_items(query, Key(key.seed, key.step, numbers))
        assert query.positions is not None
        row, place = query.positions.unbind(1)
        numbers, groups = numbers[row] * query.items.shape[1] + place, groups[row]
    return PreparedBatch(query, positives, groups, numbers, len(positives) if has_rows else 0)


def draw_negatives(sampler: Sampler, batch: PreparedBatch, k: float, key: Key, device: torch.device = CPU) -> Negatives:
    """The negatives of ``batch``: what its rows would get in one process, however many processes there are.

    They are drawn on the CPU and moved from there: the same bits as on a GPU, and on an H200 five times as fast.
    ``device`` is where ranks can speak to each other.
    """
    numbered = Key(key.seed, key.step, batch.numbers)
    more: dict[str, Any] = {}
    if distributed.world_size() > 1 and _takes(sampler, "batch"):
        more["batch"] = distributed.gather(batch.positives[: batch.counted].to(device)).cpu()
    if _takes(sampler, "query"):
        more["query"] = batch.query
    return sampler(batch.positives, k, numbered, owner=batch.groups, **more)


def plan_negatives(sampler: Planner, batch: PreparedBatch, k: float, key: Key) -> Draw:
    """The same negatives, to be drawn where they are looked up."""
    drawn = sampler.plan(batch.positives, k, Key(key.seed, key.step, batch.numbers), owner=batch.groups)
    return replace(drawn, when=torch.tensor(key.step))


def nested_samplers(sampler: Any) -> Iterator[Any]:
    """``sampler`` and every sampler that it is made of."""
    yield sampler
    for part in getattr(sampler, "parts", ()):
        yield from nested_samplers(part)


def draws_ahead(sampler: Sampler) -> bool:
    """Whether draws follow from their key alone, not from what was pushed or from the model as it is."""
    return all(getattr(one, "draws_ahead", True) for one in nested_samplers(sampler))


def stateful_samplers(sampler: Sampler) -> list[StatefulSampler]:
    """Those of ``sampler`` and its parts that remember positives."""
    return [one for one in nested_samplers(sampler) if isinstance(one, StatefulSampler)]


def check_multiprocess(sampler: Sampler) -> None:
    """Refuse a sampler that would draw from the rows of one process alone."""
    for one in nested_samplers(sampler):
        if distributed.world_size() > 1 and _takes(one, "batch") and not _takes(sampler, "batch"):
            inner, outer = type(one).__name__, type(sampler).__name__
            raise InputError(
                f"{inner} within {outer} would draw from the rows of one process alone. Train in one process, or with "
                f"{inner} by itself"
            )


def _takes(sampler: Any, name: str) -> bool:
    return name in inspect.signature(sampler).parameters


@dataclass(eq=False)
class BatchPreparer:
    """``prepare(step, k)``: the inputs of a step, from its batch and its negatives.

    ``plans``: let the loss draw the negatives itself, where sampler and model can. ``pad`` rounds sizes
    up, for CUDA graphs.
    """

    examples: TrainingExamples
    order: EpochOrder
    sampler: Sampler
    model: Any
    n_items: int
    correct: bool
    mask_items: MaskItems | None
    fabric: Any
    plans: bool = False
    pad: Callable[[StepInputs], StepInputs] | None = None

    def __post_init__(self) -> None:
        check_multiprocess(self.sampler)
        by_id = self.plans and isinstance(self.model, TableModel) and not self.correct
        self.planner = self.sampler if by_id and isinstance(self.sampler, Planner) else None

    def prepare(self, step: int, k: float) -> tuple[int, Tensor, StepInputs]:
        """Rows of the global batch, positives of this rank's part, and the inputs of the step."""
        key, rows = Key(self.order.seed, step), self.order.batch(step)
        mine = rank_slice(len(rows), self.fabric.global_rank, self.fabric.world_size)
        batch = load_batch(self.examples, rows, mine, key, self.mask_items)
        if self.planner is None:
            drawn: Negatives | Draw = draw_negatives(self.sampler, batch, k, key, self.fabric.device)
        else:
            drawn = plan_negatives(self.planner, batch, k, key)
        inputs = StepInputs.of(batch.query, batch.positives, drawn, self.model, self.n_items, self.correct)
        inputs.counted.fill_(batch.counted)
        return len(rows), batch.positives[: batch.counted], inputs if self.pad is None else self.pad(inputs)


class Prefetcher(Generic[T]):
    """``get(step, k, next_k)`` is ``make(step, k)``; a thread makes the next step meanwhile where ``next_k`` is known.

    What is made is a function of (step, k), so that it does not matter when it is made.
    """

    def __init__(self, make: Callable[[int, float], T]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, "negwise-prefetch")
        self._requested: tuple[int, float] | None = None
        self._next: Future[T] | None = None

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)

    def get(self, step: int, k: float, next_k: float | None) -> T:
        ready = self._next.result() if self._next is not None and self._requested == (step, k) else self._make(step, k)
        self._requested = None if next_k is None else (step + 1, next_k)
        self._next = None if next_k is None else self._thread.submit(self._make, step + 1, next_k)
        return ready

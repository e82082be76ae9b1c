"""The seams on one page: what a training loop, a schedule, a sampler and a model say to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from negwise.draws import Key

State = dict[str, Any]
"""What a rule remembers between steps: plain values that come back from JSON as they went in."""


VALIDATION_KS = tuple(2**power for power in range(21))
"""The K at which an observation has the reliability of the validation ranks."""


@dataclass(frozen=True)
class Observation:
    """What a rule may look at before it sets K for ``step``, the same on every rank.

    The counts are those of an earlier step, ``step - lag``, and so is the ``k`` that they were made with. Of the
    ``pairs`` of a positive and a negative, ``wins`` were won (a tie is half a win): ``wins / pairs`` estimates AUC at
    any K. Of the ``rows``, ``hits`` had a positive above all of its negatives (with ties 1 / (1 + ties)). Only drawn
    negatives count. ``rows`` is 0 beside ``pairs`` for a loss that counts no hits. ``log_k1`` is the sum of ln(K + 1)
    over ``rows``, each with the K that it had; None where that is not known. ``val_auc`` comes after an evaluation,
    with the same lag, and so does ``val_reliability``: P(K) of the validation ranks at `VALIDATION_KS`. Nothing is
    known yet in the first steps: all counts are 0.
    """

    step: int
    total_steps: int
    wins: float = 0.0
    pairs: int = 0
    hits: float = 0.0
    rows: int = 0
    log_k1: float | None = None
    k: float | None = None
    val_auc: float | None = None
    val_reliability: tuple[float, ...] | None = None


@runtime_checkable
class Rule(Protocol):
    """K for each step of training. A rule is frozen; all that changes is in the state it hands back."""

    def init(self) -> State: ...

    def update(self, observation: Observation, state: State) -> tuple[float, State]: ...


@runtime_checkable
class OpenLoopRule(Rule, Protocol):
    """A rule that looks at nothing but the fraction of training, so that K is known ahead of time."""

    def __call__(self, fraction: float) -> float: ...


@dataclass(frozen=True)
class Negatives:
    """What a sampler hands back, for B rows with room for Kmax = ceil(k) negatives each.

    ``ids`` (B, Kmax) int64 holds the negatives where ``mask`` (B, Kmax) is true. Padding is 0, a valid index; ignore
    it where ``mask`` is false. ``log_q`` (B, Kmax) is the log probability that a slot holds its id, under the
    distribution without the row's exclusions. It is finite, means nothing where ``mask`` is false, and is None where
    there is no closed form. ``removed`` (B,) is the share of the distribution that each row's exclusions took.

    Where candidates are shared, ``pool`` (P,) has their ids and ``index`` (B, Kmax) places in it: encode the
    pool once and look up. ``given`` (B,) is the number of first slots that hold negatives which came with the data;
    None where there are none.
    """

    ids: Tensor
    mask: Tensor
    log_q: Tensor | None = None
    removed: Tensor | None = None
    pool: Tensor | None = None
    index: Tensor | None = None
    given: Tensor | None = None


@dataclass(frozen=True, eq=False)
class SamplingTables:
    """What a `Draw` draws from: the sampling distribution and the excluded ids of U owners, on one device.

    Probabilities are integer weights, so that every reader of these tables draws the same ids.
    """

    columns: Tensor | None  # (2^b,) int64: threshold << 32 | alias of each column of an alias table; None: ids alike
    starts: Tensor | None  # (n_items + 1,) int64: total weight before each id; None where it is the id itself
    bits: Tensor | None  # (U, ceil(n_items / 64)) int64: a bit for each excluded id; None where that is too large
    offsets: Tensor  # (U + 1,) int64: where each owner's excluded ids begin in ``keys``
    keys: Tensor  # (N,) int64: owner * n_items + id, sorted
    spent: Tensor  # (N + 1,) int64: running weight of the excluded ids


@dataclass(frozen=True, eq=False)
class Draw:
    """Negatives that a sampler has planned and nobody has drawn: what ids (B, K) are a function of, in O(B) memory.

    Slot j of row b is drawn from the words that ``seed``, ``step``, ``stream`` and ``numbers[b]`` name in
    `negwise.draws`, and again up to ``max_redraws`` times where it is the row's positive or excluded for its owner. So
    whoever reads an id may draw it on the spot. `negatives` draws all of them as the sampler does.

    ``when`` holds the step on the device and goes before ``step``: launches that were recorded, as a CUDA graph's are,
    then draw anew for whatever step is written there.
    """

    seed: int
    step: int
    stream: int
    max_redraws: int
    n_items: int
    width: int  # K, the slots of a row
    numbers: Tensor  # (B,) int64: the rows' numbers in the global batch
    counts: Tensor  # (B,) int64: the slots of each row that are filled, its first ones
    positives: Tensor  # (B,) int64
    owners: Tensor  # (B,) int64
    allowed: Tensor  # (B,) int64: weight that is left for the row
    tables: Callable[[torch.device], SamplingTables]
    fill: Callable[[Draw], Negatives]
    when: Tensor | None = None  # one number, int64

    @property
    def rows(self) -> int:
        """B."""
        return len(self.numbers)

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Draw:
        """The same draw on ``device``; its tables follow once, where they are needed, and stay there."""

        def move(part: Tensor) -> Tensor:
            return part.to(device, non_blocking=non_blocking)

        return replace(
            self,
            numbers=move(self.numbers),
            counts=move(self.counts),
            positives=move(self.positives),
            owners=move(self.owners),
            allowed=move(self.allowed),
            when=None if self.when is None else move(self.when),
        )

    def negatives(self) -> Negatives:
        """What the sampler would have returned at once, on the device of this draw."""
        return self.fill(self if self.when is None else replace(self, step=int(self.when), when=None))


@runtime_checkable
class Sampler(Protocol):
    """Draws about ``k`` negatives (real-valued, eq. 8) for each of ``positives`` (B,), on their device.

    The same ``key`` gives the same draw. ``owner`` (B,) is the user, query or impression of each row, whose exclusions
    or lists apply.

    A sampler may say more of itself. ``parts`` are the samplers that it is made of. ``draws_ahead = False``: a draw
    follows from more than its key, so that none is made before its step. A parameter ``query`` asks the loop for the
    `Query` of the batch, a parameter ``batch`` for the positives of all processes.
    """

    def __call__(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Negatives: ...


@runtime_checkable
class StatefulSampler(Sampler, Protocol):
    """A sampler that remembers the positives of earlier steps. The loop pushes them and saves its state."""

    def push(self, ids: Tensor) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@runtime_checkable
class Planner(Sampler, Protocol):
    """A sampler that can also say what it would draw, for a loss that draws where it looks up."""

    def plan(self, positives: Tensor, k: float, key: Key, *, owner: Tensor | None = None) -> Draw: ...


class LossCounts(Protocol):
    """What a loss returns: the loss, and the pairs that each row won and had, for ``reduction="none"`` all (B,).

    It may also have ``hits`` and ``rows``, as `negwise.losses.LossResult` does.
    """

    @property
    def loss(self) -> Tensor: ...

    @property
    def wins(self) -> Any: ...

    @property
    def pairs(self) -> Any: ...


class Loss(Protocol):
    """Rows of queries (B, D) and positives (B, D) against rows of a table (M, D), by ids (B, K) or as a `Draw`.

    `negwise.losses.info_nce` is one.
    """

    def __call__(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor,
        /,
        *,
        ids: Tensor | Draw,
        mask: Tensor | None = None,
        log_q: Tensor | None = None,
        reduction: str = "mean",
    ) -> LossCounts: ...


@dataclass(frozen=True)
class Query:
    """The query side of a batch, by ids: B rows of H places.

    ``items`` (B, H) int64 is what each query is made of: the clicked news of a user, a sequence of items, or
    (H = 1) the text whose left side asks. ``mask`` (B, H) bool is true where there is an item. Padding is 0, a
    valid index; ignore it where ``mask`` is false. ``users`` (B,) int64 says who asks, from 0; the row's own number
    where there are no users. ``positions`` (P, 2) int64 holds the (row, place) of
    each query that is read off a sequence; None means one query per row.
    """

    items: Tensor
    mask: Tensor
    users: Tensor
    positions: Tensor | None = None

    def __len__(self) -> int:
        """How many queries there are: P where they are read off sequences, else B."""
        return len(self.items) if self.positions is None else len(self.positions)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Query:
        """The same query on ``device``."""

        def move(part: Tensor) -> Tensor:
            return part.to(device, non_blocking=non_blocking)

        return Query(
            move(self.items),
            move(self.mask),
            move(self.users),
            None if self.positions is None else move(self.positions),
        )


@runtime_checkable
class Model(Protocol):
    """Two sides of vectors of one width D; the score of a query and a candidate is their dot product.

    A model is an ``nn.Module`` that knows nothing of K, samplers and losses. Where ``needs_items`` is true a
    query is made of candidates: ``encode_queries`` calls ``item_vectors(ids (B, H))`` for their vectors (B, H, D),
    so that each distinct candidate of a step is encoded once. Other models never call it.

    A model may also say ``graph_safe = True``: what it does follows from the sizes of its input alone, and no vector
    depends on which others are encoded with it, so that a step of it can be filled up, recorded and replayed on a GPU.
    """

    needs_items: bool

    def encode_candidates(self, ids: Tensor) -> Tensor:
        """ids (N,) -> vectors (N, D)."""
        ...

    def encode_queries(self, query: Query, item_vectors: Callable[[Tensor], Tensor]) -> Tensor:
        """One vector per query: (B, D), or (P, D) where ``query.positions`` says so."""
        ...


@runtime_checkable
class TableModel(Model, Protocol):
    """A model whose candidates are the rows of a table, so that none need be encoded."""

    @property
    def table(self) -> Tensor:
        """(n_items, D): ``encode_candidates(ids)`` is ``table[ids]``."""
        ...

"""A small world in which every sampler's distribution can be written down, in Python loops.

``probabilities(row)`` is the referee: the probability that a slot of that row holds each id, by definition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from negwise.samplers import (
    BatchFirst,
    Exclusions,
    Given,
    GivenFirst,
    Hardest,
    Impression,
    InBatch,
    Lists,
    Mixture,
    Pool,
    Popularity,
    Queue,
    Uniform,
)

N_ITEMS, N_OWNERS, ROWS = 24, 8, 16
RNG = np.random.default_rng(0)

HISTORY = [sorted(RNG.choice(N_ITEMS, RNG.integers(2, 9), replace=False).tolist()) for _ in range(N_OWNERS - 1)]
HISTORY.append(list(range(N_ITEMS)))  # the last owner knows everything: nothing is left for it
SHOWN = [RNG.permutation(N_ITEMS)[: RNG.integers(8, 15)].tolist() for _ in range(N_OWNERS)]
POPULARITY = RNG.integers(0, 40, N_ITEMS)
POPULARITY[5] = 0
QUEUED = RNG.integers(0, N_ITEMS, 60)
FIRST_HALF = (torch.arange(N_ITEMS) < N_ITEMS // 2).long()  # counts of a pool that what is given may lie outside of

OWNERS = RNG.integers(0, N_OWNERS - 1, ROWS)
# Half the positives are new to their owner, so that excluding the positive itself is put to the test.
POSITIVES = np.array([RNG.choice(HISTORY[u]) if row % 2 else RNG.integers(N_ITEMS) for row, u in enumerate(OWNERS)])
# The positives of some rows are among what is given to their owner.
NEW = [[p for p, u in zip(POSITIVES.tolist(), OWNERS, strict=True) if u == owner] for owner in range(N_OWNERS)]
GIVEN = [
    [i for i in dict.fromkeys([*new[:2], *shown]) if i not in mine][:2]
    for new, shown, mine in zip(NEW, SHOWN, HISTORY, strict=True)
]

Probabilities = dict[int, float]


def normalised(weights: dict[int, float], positive: int, owner: int) -> Probabilities:
    left = {i: w for i, w in weights.items() if w > 0 and i != positive and i not in HISTORY[owner]}
    total = sum(left.values())
    return {i: w / total for i, w in left.items()}


def uniform_probabilities(positive: int, owner: int) -> Probabilities:
    return normalised(dict.fromkeys(range(N_ITEMS), 1.0), positive, owner)


def popularity_probabilities(positive: int, owner: int) -> Probabilities:
    return normalised({i: float(c) ** 0.75 if c else 0.0 for i, c in enumerate(POPULARITY)}, positive, owner)


def counted(ids: Any) -> Callable[[int, int], Probabilities]:
    return lambda positive, owner: normalised(dict(Counter(int(i) for i in ids)), positive, owner)


def shown_probabilities(positive: int, owner: int) -> Probabilities:
    return normalised(dict.fromkeys(SHOWN[owner], 1.0), positive, owner)


def mixture_probabilities(positive: int, owner: int) -> Probabilities:
    parts = [
        (0.5, uniform_probabilities(positive, owner)),
        (0.3, popularity_probabilities(positive, owner)),
        (0.2, shown_probabilities(positive, owner)),
    ]
    mixed: Counter[int] = Counter()
    for weight, probabilities in parts:
        for i, q in probabilities.items():
            mixed[i] += weight * q / sum(w for w, one in parts if one)
    return dict(mixed)


def hardness(ids: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    return torch.sin(ids * 1.7 + positives[:, None])


@dataclass(frozen=True)
class Case:
    """A sampler, made for a policy; its probabilities; how much there is for a row (None: no end)."""

    name: str
    make: Callable[[str], Any]
    probabilities: Callable[[int, int], Probabilities] | None = None
    supply: Callable[[int, int], int] | None = None
    random: bool = True
    policy: bool = True
    extra: Callable[[torch.device], dict[str, Any]] = field(default=lambda _: {})

    def __str__(self) -> str:
        return self.name


def known() -> Exclusions:
    return Exclusions.of(Lists.of(HISTORY), N_ITEMS)


def known_or_given() -> Exclusions:
    """What is given does not come a second time."""
    return Exclusions.of(Lists.of([mine + given for mine, given in zip(HISTORY, GIVEN, strict=True)]), N_ITEMS)


def filled_queue(policy: str) -> Queue:
    queue = Queue(len(QUEUED), exclude=known(), on_shortage=policy)
    queue.push(torch.from_numpy(QUEUED))
    return queue


def supply_of(ids: Callable[[int], Any]) -> Callable[[int, int], int]:
    return lambda positive, owner: sum(int(i) != positive and int(i) not in HISTORY[owner] for i in ids(owner))


def popularity(policy: str = "mask") -> Popularity:
    return Popularity(torch.from_numpy(POPULARITY), alpha=0.75, exclude=known(), on_shortage=policy)


ALL_SAMPLERS = [
    Case("Uniform", lambda p: Uniform(N_ITEMS, known(), p), uniform_probabilities),
    Case(
        "UniformWithoutBitmap",
        lambda p: Uniform(N_ITEMS, Exclusions.of(Lists.of(HISTORY), N_ITEMS, bitmap=False), p),
        uniform_probabilities,
    ),
    Case("UniformInTorch", lambda p: Uniform(N_ITEMS, known(), p, impl="torch"), uniform_probabilities),
    Case("Popularity", popularity, popularity_probabilities),
    Case(
        "InBatch",
        lambda p: InBatch(known(), p),
        counted(POSITIVES),
        supply_of(lambda _: POSITIVES),
        extra=lambda device: {"batch": torch.from_numpy(POSITIVES).to(device)},
    ),
    Case(
        "BatchFirst",
        lambda p: BatchFirst(N_ITEMS, known(), p),
        supply=supply_of(lambda _: range(N_ITEMS)),
        extra=lambda device: {"batch": torch.from_numpy(POSITIVES).to(device)},
    ),
    Case("Queue", filled_queue, counted(QUEUED), supply_of(lambda _: QUEUED)),
    Case(
        "Impression",
        lambda p: Impression(Lists.of(SHOWN), known(), p),
        shown_probabilities,
        supply_of(lambda u: SHOWN[u]),
    ),
    Case(
        "Given",
        lambda p: Given(Lists.of(SHOWN), known(), p),
        supply=supply_of(lambda u: SHOWN[u]),
        random=False,
    ),
    Case("GivenFirst", lambda p: GivenFirst(Lists.of(GIVEN), Uniform(N_ITEMS, known_or_given(), p))),
    Case(
        "GivenFirstThenPool",
        lambda p: GivenFirst(Lists.of(GIVEN), Pool(Popularity(FIRST_HALF, exclude=known_or_given()), 90, p)),
        policy=False,
    ),
    # The pool is large enough that no row runs out of candidates at the K of these tests.
    Case("Pool", lambda p: Pool(Uniform(N_ITEMS, known()), 90, p), uniform_probabilities, policy=False),
    Case("Hardest", lambda p: Hardest(Uniform(N_ITEMS, known()), 40, hardness, p), policy=False),
    Case(
        "Mixture",
        lambda p: Mixture(
            [Uniform(N_ITEMS, known(), p), popularity(p), Impression(Lists.of(SHOWN), known())],
            [0.5, 0.3, 0.2],
        ),
        mixture_probabilities,
    ),
]

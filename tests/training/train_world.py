"""A world of a few items in which the next one can be learnt, two toy models, and splits to judge them by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from negwise.protocols import Query
from negwise.samplers import Exclusions, Lists, Uniform
from negwise.schedule import AnsK
from negwise.tasks import evaluation_splits
from negwise.training import Settings, fit, open_run

N_ITEMS, N_USERS, PLACES = 50, 23, 4


class Dot(nn.Module):
    """A user's vector against an item's."""

    needs_items = False

    def __init__(self, width: int = 8, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.users, self.items = nn.Embedding(N_USERS, width), nn.Embedding(N_ITEMS, width)
        self.dropout = nn.Dropout(dropout)

    def encode_candidates(self, ids):
        return self.dropout(self.items(ids))

    def encode_queries(self, query, item_vectors):  # noqa: ARG002
        return self.users(query.users)


class Mean(nn.Module):
    """The mean of what was clicked, through a layer: a query made of candidates."""

    needs_items = True

    def __init__(self, width: int = 8, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.items, self.news, self.mix = (
                nn.Embedding(N_ITEMS, width),
                nn.Linear(width, width),
                nn.Linear(width, width),
            )
        self.dropout = nn.Dropout(dropout)
        self.encoded: list[int] = []

    def encode_candidates(self, ids):
        self.encoded.append(len(ids))
        return self.dropout(torch.tanh(self.news(self.items(ids))))

    def encode_queries(self, query, item_vectors):
        weight = query.mask.to(self.mix.weight.dtype)[..., None]
        return self.mix((item_vectors(query.items) * weight).sum(1) / weight.sum(1).clamp(min=1))


@dataclass(frozen=True, eq=False)
class Clicks:
    """Examples as `negwise.datasets` has them."""

    items: np.ndarray
    mask: np.ndarray
    users: np.ndarray
    positives: np.ndarray
    groups: np.ndarray
    candidates: tuple[int, int] = (0, N_ITEMS)

    def __len__(self) -> int:
        return len(self.positives)

    def batch(self, indices):
        query = Query(*(torch.from_numpy(part[indices]) for part in (self.items, self.mask, self.users)))
        return query, torch.from_numpy(self.positives[indices]), torch.from_numpy(self.groups[indices])


@dataclass(frozen=True, eq=False)
class Rag:
    offsets: np.ndarray
    ids: np.ndarray

    def __getitem__(self, row: int) -> np.ndarray:
        return self.ids[self.offsets[row] : self.offsets[row + 1]]


@dataclass(frozen=True, eq=False)
class World:
    train: Clicks
    val: Clicks
    test: Clicks
    eval_exclusions: Rag
    impressions: Rag | None = None
    labels: np.ndarray | None = None


def ragged(rows) -> Rag:
    sizes = [0] + [len(row) for row in rows]
    return Rag(np.cumsum(sizes), np.concatenate([np.asarray(row, np.int64) for row in rows]))


def make_world(n: int = 157, held: int = 40, shown: bool = False, seed: int = 0) -> World:
    """A user likes the items of one half; by ``shown`` each group has seen a list with one or two clicks in it."""
    rng = np.random.default_rng(seed)

    def clicks(count: int, first_group: int) -> Clicks:
        users = rng.integers(0, N_USERS, count)
        mask = np.arange(PLACES) < rng.integers(0, PLACES + 1, count)[:, None]
        half = (users % 2) * (N_ITEMS // 2)
        items = (half[:, None] + rng.integers(0, N_ITEMS // 2, (count, PLACES))) * mask
        positives = half + rng.integers(0, N_ITEMS // 2, count)
        groups = first_group + np.arange(count) if shown else users
        return Clicks(items, mask, users, positives, groups)

    splits = [clicks(n, 0), clicks(held, n), clicks(held, n + held)]
    if not shown:
        seen = [np.unique(rng.integers(0, N_ITEMS, 5)) for _ in range(N_USERS)]
        return World(*splits, eval_exclusions=ragged(seen))
    lists, labels = [], []
    for split in splits:
        for positive in split.positives:
            others = rng.permutation(np.setdiff1d(np.arange(N_ITEMS), positive))[: rng.integers(2, 9)]
            lists.append(np.append(others, positive))
            labels.append(np.append(np.arange(len(others)) == 0 if rng.random() < 0.3 else np.zeros(len(others)), 1))
    clicked = ragged(lists)
    return World(*splits, eval_exclusions=clicked, impressions=clicked, labels=np.concatenate(labels).astype(np.int8))


def make_sampler(world: World) -> Uniform:
    lists = Lists(torch.from_numpy(world.eval_exclusions.offsets), torch.from_numpy(world.eval_exclusions.ids))
    return Uniform(N_ITEMS, exclude=Exclusions.of(lists, N_ITEMS))


class Watching:
    """A closed-loop rule: one more negative after each step with a win rate over a half, one fewer after others."""

    def init(self) -> dict[str, Any]:
        return {"k": 2.5, "seen": []}

    def update(self, observation, state):
        rate = observation.wins / observation.pairs if observation.pairs else 0.5
        k = min(8.5, max(1.5, state["k"] + (1 if rate > 0.55 else -1 if rate < 0.45 else 0)))
        seen = state["seen"] if observation.val_auc is None else [*state["seen"], observation.val_auc]
        return k, {"k": k, "seen": seen}

    def __repr__(self) -> str:
        return "Watching()"


def run(out, model=None, world=None, *, until=None, should_stop=None, **changes):
    """`fit` with small defaults; keywords of `Settings` and of `fit` may be given alike."""
    examples, parts = parts_of(world or make_world(), **changes)
    return fit(out, model or Dot(), examples, until=until, should_stop=should_stop, **parts)


def open_world_run(out, model=None, world=None, **changes):
    """`open_run` with the same defaults."""
    examples, parts = parts_of(world or make_world(), **changes)
    return open_run(out, model or Dot(), examples, **parts)


def parts_of(world, *, rule=None, optimizer=None, **changes):
    """The examples, and the other parts of a run."""
    names = set(Settings.__dataclass_fields__)
    settings = {"steps": 17, "batch_size": 10, "eval_every": 5, "device": "cpu", "seed": 3}
    settings |= {name: value for name, value in changes.items() if name in names}
    more = {"show": False} | {name: value for name, value in changes.items() if name not in names}
    examples = more.pop("examples", world.train)
    parts = {
        "n_items": N_ITEMS,
        "sampler": more.pop("sampler") if "sampler" in more else make_sampler(world),  # an empty queue is falsy
        "rule": rule or AnsK(4.5),
        "settings": Settings(**settings),
        "splits": more.pop("splits") if "splits" in more else evaluation_splits(world),
        "optimizer": optimizer or partial(torch.optim.Adam, lr=0.02),
    }
    return examples, {**parts, **more}

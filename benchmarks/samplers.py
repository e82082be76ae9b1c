"""Draws a second on one core, positives and histories excluded, beside RecBole's own sampler.

The data are ML-1M's interactions (``ml-1m/ml-1m_sas.txt.xz`` under the folder that NEGWISE_DATA names, or under
../shared/data); where they are missing, a generated world of the same shape, and the rows say so. A batch is
5,120 interactions drawn at random, so busy users weigh as they do in training: 11% of uniform and 27% of popularity
draws hit what the user knows. Ours is the whole call: ids, mask and the share removed; ``log_q`` is constant
over a row for uniform draws, and has a row of its own for popularity, where it is one more look-up a draw.
"""

from __future__ import annotations

import importlib
import lzma
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.table import Row, seconds
from negwise.draws import Key
from negwise.samplers import Exclusions, Lists, Popularity, Uniform, compiled_draws

PEER = "recbole==1.2.1"
ROWS, K = 5120, 100
USERS, ITEMS, INTERACTIONS = 6040, 3416, 999_611


def interactions() -> tuple[str, NDArray[np.int64]]:
    """The name of the data and their (user, item) pairs, (N, 2), both from 1 as RecBole counts."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("NEGWISE_DATA", beside)) / "ml-1m" / "ml-1m_sas.txt.xz"
    if path.is_file():
        with lzma.open(path, "rt") as lines:
            return "ML-1M", np.loadtxt(lines, dtype=np.int64)
    rng = np.random.default_rng(0)
    wanted = np.minimum(rng.lognormal(4.6, 1.0, USERS), 0.6 * ITEMS)
    popular = np.arange(1, ITEMS + 1) ** -0.7
    # Weighted choice without replacement: the largest of u ** (1 / w), by its logarithm.
    race = np.log(rng.random((USERS, ITEMS))) / popular
    order = np.argsort(-race, axis=1)
    kept = np.arange(ITEMS) < np.round(wanted * INTERACTIONS / wanted.sum())[:, None]
    user = np.repeat(np.arange(1, USERS + 1), kept.sum(1))
    return "a world like ML-1M", np.stack((user, order[kept] + 1), 1)


def peer(pairs: NDArray[np.int64], distribution: str) -> Any:
    """RecBole's own ``Sampler``, from its package; its module needs NumPy and torch only."""
    home = Path(os.environ.get("NEGWISE_PEERS", Path(tempfile.gettempdir()) / "negwise-peers")) / "recbole"
    if not (home / "recbole").is_dir():
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(home), PEER]
        subprocess.run(command, check=True)
    sys.path.insert(0, str(home))
    try:
        sampler = importlib.import_module("recbole.sampler")
    finally:
        sys.path.remove(str(home))
    data = SimpleNamespace(
        uid_field="user",
        iid_field="item",
        user_num=int(pairs[:, 0].max()) + 1,
        item_num=int(pairs[:, 1].max()) + 1,
        inter_feat={"user": torch.from_numpy(pairs[:, 0]), "item": torch.from_numpy(pairs[:, 1])},
    )
    return sampler.Sampler("train", data, distribution).set_phase("train")


def fill_only(slots: int) -> Callable[[], None]:
    """The random words of so many draws and nothing else, a tile at a time as the sampler makes them."""
    blocks = compiled_draws.TILE // 2
    c0, c1, c3 = np.arange(blocks, dtype=np.uint32), np.zeros(blocks, np.uint32), np.zeros(blocks, np.uint32)
    hi, lo = np.empty(2 * blocks, np.uint32), np.empty(2 * blocks, np.uint32)
    word = np.uint32(1)

    def call() -> None:
        for _ in range(slots // compiled_draws.TILE):
            compiled_draws.fill_words(hi, lo, c0, c1, word, c3, word, word, blocks)

    return call


def run() -> list[Row]:
    torch.set_num_threads(1)
    name, pairs = interactions()
    users, items = (torch.from_numpy(column - 1) for column in pairs.T.copy())
    n_users, n_items = int(users.max()) + 1, int(items.max()) + 1
    popularity = torch.bincount(items, minlength=n_items)
    batch = torch.from_numpy(np.random.default_rng(1).integers(len(pairs), size=ROWS))
    positives, owner = items[batch], users[batch]
    lists = Lists.of_pairs(users, items, n_users)
    bitmap, search = (Exclusions.of(lists, n_items, bitmap=bits) for bits in (True, False))

    ours: dict[str, Uniform | Popularity] = {
        "uniform": Uniform(n_items, bitmap),
        "uniform, no bitmap": Uniform(n_items, search),
        "uniform, plain torch": Uniform(n_items, bitmap, impl="torch"),
        "popularity": Popularity(popularity, exclude=bitmap, log_q=False),
        "popularity, with log_q": Popularity(popularity, exclude=bitmap),
        "popularity, no bitmap": Popularity(popularity, exclude=search, log_q=False),
        "popularity, plain torch": Popularity(popularity, exclude=bitmap, impl="torch"),
    }
    steps = {label: 2 if "torch" in label else 20 for label in ours}
    calls = {label: _train(sampler, positives, owner, steps[label]) for label, sampler in ours.items()}
    for distribution in ("uniform", "popularity"):
        calls[f"{distribution}, RecBole"] = _recbole(peer(pairs, distribution), owner, positives)
    calls["random words alone"] = fill_only(ROWS * K)
    rate = {label: steps.get(label, 1) * ROWS * K / time / 1e6 for label, time in seconds(calls, repeats=5).items()}

    work = f"draws, {name}, K={K}, 1 core"
    rows = []
    for distribution, bar in (("uniform", 200.0), ("popularity", 150.0)):
        recbole = rate[f"{distribution}, RecBole"]
        without = rate[f"{distribution}, no bitmap"]
        fast = ours.get(f"{distribution}, with log_q", ours[distribution])
        same = _same(fast, ours[f"{distribution}, plain torch"], positives, owner)
        rows += [
            Row(work, f"{distribution}, without log_q", rate[distribution], bar, unit="M/s"),
            Row(work, f"{distribution}, RecBole {recbole:.2f} M/s", rate[distribution] / recbole, 30.0),
            Row(work, f"{distribution}, without a bitmap", without, 25.0, unit="M/s"),
            Row(work, f"{distribution}, plain torch", rate[f"{distribution}, plain torch"], unit="M/s"),
            Row(work, f"{distribution}, draws that plain torch gives too", same, 1.0, unit=""),
        ]
    rows.append(Row(work, "popularity with log_q", rate["popularity, with log_q"], unit="M/s"))
    return [*rows, Row(work, "the limit: random words alone", rate["random words alone"], unit="M/s")]


def _train(sampler: Uniform | Popularity, positives: Tensor, owner: Tensor, steps: int) -> Callable[[], object]:
    """Some steps of training, as far as the sampler is concerned: each step has its own key."""

    def call() -> None:
        for step in range(steps):
            sampler(positives, K, Key(seed=0, step=step), owner=owner)

    return call


def _recbole(sampler: Any, owner: Tensor, positives: Tensor) -> Callable[[], object]:
    users, items = (owner + 1).numpy(), (positives + 1).numpy()
    return lambda: sampler.sample_by_user_ids(users, items, K)


def _same(one: Uniform | Popularity, other: Uniform | Popularity, positives: Tensor, owner: Tensor) -> float:
    """Share of ids and ``log_q`` that two samplers have in common, over whole and real K."""
    shares = []
    for k in (K, 7.5):
        a, b = (sampler(positives, k, Key(0, 1), owner=owner) for sampler in (one, other))
        assert a.log_q is not None
        assert b.log_q is not None
        shares += [torch.eq(x, y).double().mean() for x, y in ((a.ids, b.ids), (a.log_q, b.log_q))]
    return float(torch.stack(shares).min())

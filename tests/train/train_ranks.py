"""A run of every case, for ``torchrun`` or alone: ``python train_ranks.py OUT``."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from train_world import N_ITEMS, Dot, Mean, Watching, make_world, run

from negwise.protocols import Query
from negwise.samplers import InBatch, Pool, Uniform


def hide(query, key):
    """A row asks for as many of its places as its number says, 1 to 3."""
    number = key.rows(len(query.items)).tolist()
    reads = torch.tensor([(row, place) for row in range(len(number)) for place in range(number[row] % 3 + 1)])
    return Query(query.items, query.mask, query.users, reads), query.items[reads[:, 0], reads[:, 1]]


class Places(Dot):
    """A user and a place ask."""

    def encode_queries(self, query, encoded):  # noqa: ARG002
        row, place = query.reads.unbind(1) if query.reads is not None else (torch.arange(len(query)), 0)
        return self.users(query.users[row]) + self.items(query.items[row, place])


CASES = {
    "dot": {"model": Dot},
    "mean": {"model": Mean, "world": make_world(shown=True)},
    "watching": {"model": Mean, "rule": Watching()},
    "in-batch": {"model": Mean, "sampler": InBatch()},
    "pool": {"model": Mean, "sampler": Pool(Uniform(N_ITEMS), 20), "log_every": 4},
    "cloze": {"model": Places, "hide": hide},
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for name, case in CASES.items():
        # 157 examples in batches of 12 leave one for the last step of an epoch: a rank then has none.
        run(Path(sys.argv[1]) / name, case.pop("model")(), batch_size=12, steps=16, **case)

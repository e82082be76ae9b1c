"""Runs by one process and by two: ``torchrun train_ranks.py OUT`` is a run of every case.

``python train_ranks.py`` reads requests, one JSON object a line: {"ranks", "out", "case", "point", "number"}, and
answers {"codes", "said"}. The ranks are forks of it, as it has everything imported, in the environment that torchrun
makes. Without a case they run all of them. The second rank gets a Ctrl-C at the number-th "step" or, between two chunks
of an evaluation, "chunk"; at "never" it goes on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from train_world import N_ITEMS, Dot, Mean, Watching, make_world, run

from negwise.metrics import model_ranking
from negwise.protocols import Query
from negwise.samplers import InBatch, Pool, Uniform
from negwise.schedule import OnlineK
from negwise.training import Stopped, batches, loop


def mask_items(query, key):
    """A row asks for as many of its places as its number says, 1 to 3."""
    number = key.rows(len(query.items)).tolist()
    reads = torch.tensor([(row, place) for row in range(len(number)) for place in range(number[row] % 3 + 1)])
    return Query(query.items, query.mask, query.users, reads), query.items[reads[:, 0], reads[:, 1]]


class Places(Dot):
    """A user and a place ask."""

    def encode_queries(self, query, item_vectors):  # noqa: ARG002
        row, place = query.positions.unbind(1) if query.positions is not None else (torch.arange(len(query)), 0)
        return self.users(query.users[row]) + self.items(query.items[row, place])


class Rows(Places):
    """The same with candidates that are the rows of a table, so that places are ids."""

    @property
    def table(self):
        return self.items.weight


CASES = {
    "dot": {"model": Dot},
    "mean": {"model": Mean, "world": make_world(shown=True)},
    "watching": {"model": Mean, "rule": Watching()},
    "online": {"model": Mean, "rule": OnlineK(0.3), "lag": 2},
    "in-batch": {"model": Mean, "sampler": InBatch()},
    "pool": {"model": Mean, "sampler": Pool(Uniform(N_ITEMS), 20), "log_every": 4},
    "cloze": {"model": Places, "mask_items": mask_items},
    "table": {"model": Rows, "mask_items": mask_items},
}


def interrupted(function, number: int):
    """``function`` with a Ctrl-C for the second rank when it is called for the ``number``-th time."""
    calls = []

    def called(*arguments):
        calls.append(1)
        if len(calls) == number and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGINT)
        return function(*arguments)

    return called


def go(out: str, name: str) -> None:
    # 157 examples in batches of 12 leave one for the last step of an epoch: a rank then has none.
    case = dict(CASES[name])
    run(Path(out) / name, case.pop("model")(), batch_size=12, steps=16, **case)


def go_all(out: str) -> None:
    for name in CASES:
        go(out, name)


def work(request) -> int:
    if request["point"] == "step":
        batches.load_batch = interrupted(batches.load_batch, request["number"])
    elif request["point"] == "chunk":
        loop.Run.agree = interrupted(loop.Run.agree, request["number"])
    try:
        if request["case"] is None:
            go_all(request["out"])
        else:
            go(request["out"], request["case"])
    except Stopped as stopped:
        os.write(1, f"rank {os.environ['RANK']}: {stopped}\n".encode())  # in one piece, as two processes speak
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun tells a rank."""
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_PORT": port}
    return {"MASTER_ADDR": "127.0.0.1"} | {name: str(value) for name, value in places.items()}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answer(request) -> dict[str, object]:
    port, children = free_port(), []
    with tempfile.TemporaryFile("w+") as said:
        for rank in range(request["ranks"]):
            child = os.fork()
            if child == 0:
                if request["ranks"] > 1:
                    os.environ |= environment(rank, request["ranks"], port)
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                os._exit(work(request))
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        said.seek(0)
        return {"codes": codes, "said": said.read()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    # Three chunks of queries, six of items: one rank has more to do than the other.
    model_ranking.CHUNK_QUERIES = 15
    model_ranking.CHUNK_ITEMS = 9
    if sys.argv[1:]:
        go_all(sys.argv[1])
    else:
        for line in sys.stdin:
            print(json.dumps(answer(json.loads(line))), flush=True)

"""Two processes (gloo) are one process: the same loss, the same gradients after DDP's average, the same counts."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from negwise import distributed
from negwise.errors import InputError
from negwise.losses import info_nce

ROWS, DEPTH, WIDTH = 6, 5, 4
SPLITS = {"even": [3, 3], "uneven": [4, 2]}
Case = tuple[str, torch.dtype, str, str]
CASES: list[Case] = [
    (kind, dtype, split, impl)
    for kind in ("batch", "named", "queue")
    for dtype in (torch.float32, torch.float64)
    for split, impl in (("even", "streamed"), ("uneven", "streamed"), ("even", "reference"))
]


def data(dtype: torch.dtype) -> dict[str, Tensor]:
    make = torch.Generator().manual_seed(0)
    return {
        "x": torch.randn(ROWS, DEPTH, generator=make, dtype=torch.float64).to(dtype),
        "y": torch.randn(ROWS, DEPTH, generator=make, dtype=torch.float64).to(dtype),
        "queue": torch.randn(40, WIDTH, generator=make, dtype=torch.float64).to(dtype),
        "names": torch.tensor([5, 1, 2, 1, 5, 9]),
    }


def encoder(dtype: torch.dtype) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(DEPTH, WIDTH, dtype=dtype)


def one_process(kind: str, dtype: torch.dtype, impl: str) -> dict[str, object]:
    given, model = data(dtype), encoder(dtype)
    negatives = given["queue"] if kind == "queue" else None
    names = given["names"] if kind == "named" else None
    got = info_nce(model(given["x"]), model(given["y"]), negatives, positive_ids=names, temperature=0.5, impl=impl)
    got.loss.backward()
    assert got.wins is not None and got.pairs is not None
    counts = (float(got.wins.sum()), int(got.pairs.sum()))
    return {"loss": got.loss.item(), "weight": model.weight.grad, "bias": model.bias.grad, "counts": counts}


def work(rank: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=timedelta(seconds=60))
    torch.save([one_rank(rank, *case) for case in CASES], Path(out) / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


def one_rank(rank: int, kind: str, dtype: torch.dtype, split: str, impl: str) -> dict[str, object]:
    parts = SPLITS[split]
    mine = slice(sum(parts[:rank]), sum(parts[: rank + 1]))
    given, model = data(dtype), DistributedDataParallel(encoder(dtype))
    both = model(torch.cat([given["x"][mine], given["y"][mine]]))
    query, positive = both.chunk(2)
    total, start = distributed.total_rows(len(query)), distributed.row_offset(len(query))
    if kind == "queue":
        more: dict[str, Tensor] = {"negatives": given["queue"]}
    else:
        names = distributed.gather(given["names"][mine]) if kind == "named" else torch.arange(total)
        more = {"negatives": distributed.gather(positive), "ids": names}
        more["positive_ids"] = names[start : start + len(query)]
    if split == "even":
        got = info_nce(query, positive, **more, temperature=0.5, impl=impl)
        loss = got.loss
    else:
        got = info_nce(query, positive, **more, temperature=0.5, impl=impl, reduction="sum")
        loss = got.loss * distributed.world_size() / total
    loss.backward()
    assert got.wins is not None and got.pairs is not None
    whole = loss.detach().clone()
    dist.all_reduce(whole)
    grads = model.module
    return {
        "loss": whole.item() / 2,
        "weight": grads.weight.grad,
        "bias": grads.bias.grad,
        "counts": tuple(distributed.total(torch.stack([got.wins.double().sum(), got.pairs.double().sum()])).tolist()),
        "rank": distributed.process_rank(),
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def both_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """What each of two processes found, for all cases: starting processes is what takes the time."""
    out = tmp_path_factory.mktemp("ranks")
    mp.spawn(work, (free_port(), str(out)), nprocs=2)  # type: ignore[no-untyped-call]
    return [torch.load(out / f"{rank}.pt") for rank in (0, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_gradients_are_not_scaled_by_the_world_size(case: Case, both_ranks: list[list[dict[str, Any]]]) -> None:
    kind, dtype, _, _ = case
    want = one_process(kind, dtype, "reference")
    tolerance = {"rtol": 1e-11, "atol": 1e-13} if dtype == torch.float64 else {"rtol": 2e-5, "atol": 1e-6}
    for rank in (0, 1):
        got = both_ranks[rank][CASES.index(case)]
        assert got["rank"] == rank and got["counts"] == want["counts"]
        assert got["loss"] == pytest.approx(want["loss"], rel=tolerance["rtol"])
        torch.testing.assert_close(got["weight"], want["weight"], **tolerance)
        torch.testing.assert_close(got["bias"], want["bias"], **tolerance)


@pytest.mark.parametrize(
    ("config", "device"),
    [("cuda:nccl", "cuda"), ("cpu:gloo,cuda:nccl", "cpu"), ("cpu:gloo", "cpu"), ("xpu:xccl", "xpu")],
)
def test_counts_travel_on_a_device_that_the_group_can_send(config: str, device: str, monkeypatch) -> None:
    """NCCL alone, what a cluster has, takes no tensor of a CPU."""
    monkeypatch.setattr(torch.distributed, "get_backend_config", lambda: config)
    assert distributed._spoken() == torch.device(device)


def test_one_process_alone() -> None:
    rows = torch.randn(3, 2, requires_grad=True)
    assert distributed.gather(rows) is rows
    assert (distributed.process_rank(), distributed.world_size(), distributed.is_distributed()) == (0, 1, False)
    assert distributed.row_offset(3) == 0 and distributed.total_rows(3) == 3
    counts = torch.tensor([1.5, 2.0])
    assert distributed.total(counts) is counts
    with pytest.raises(InputError, match="expected rows"):
        distributed.gather(torch.tensor(1.0))

"""InfoNCE on one GPU, kernels beside plain torch: ``python -m benchmarks.kernels OUT.json [name ...]``.

Median of CUDA-event timings, the L2 cache overwritten before each; work under 100 us is replayed from a CUDA graph.
Memory is the peak above what the inputs take. ``limit_ms`` is the larger of the fewest bytes over the bandwidth of a
copy, and the operations over the rate of a large bfloat16 product, both measured in the same run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from negwise.files import write_atomically
from negwise.losses import info_nce, raise_late

CUDA = torch.device("cuda")
SHORT = 0.1  # ms
Call = Callable[[], object]


def times(call: Call, repeats: int = 20, warmup: int = 3, most: float = 400.0) -> list[float]:
    """Milliseconds of each call, by events, with a cold L2; fewer repeats where they would take more than ``most``."""
    flush = torch.empty(2**28, dtype=torch.int8, device=CUDA)
    spent: list[float] = []
    for turn in range(repeats + warmup):
        if len(spent) > 4 and sum(spent) > most:
            break
        flush.fill_(turn)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if turn >= warmup:
            spent.append(begin.elapsed_time(end))
    return spent


def replayed(call: Call) -> Call:
    """The same work as a graph."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(call: Call, graph: bool = False) -> dict[str, float]:
    """Time and peak memory; ``graph``: also replayed, which counts where the work is short."""
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20
    spent = times(call)
    found = {"ms": float(np.median(spent)), "ms_min": min(spent), "peak_mib": peak}
    if graph:
        found["graph_ms"] = float(np.median(times(replayed(call))))
    return found


def ceilings() -> dict[str, float]:
    """Bytes per ms of a large copy, read and written, and operations per ms of a large bfloat16 product."""
    source = torch.empty(2**31, dtype=torch.int8, device=CUDA).random_()
    target = torch.empty_like(source)
    copied = 2 * source.numel() / float(np.median(times(lambda: target.copy_(source))))
    a = torch.randn(8192, 8192, device=CUDA, dtype=torch.bfloat16)
    multiplied = 2 * 8192**3 / float(np.median(times(lambda: a @ a)))
    return {"bytes_per_ms": copied, "operations_per_ms": multiplied}


def both_ways(loss: Callable[[], Tensor], leaves: list[Tensor]) -> Call:
    def call() -> None:
        torch.autograd.grad(loss(), leaves)

    return call


def off(ours: Tensor, theirs: Tensor, leaves: list[Tensor]) -> list[float]:
    """How far two losses and their gradients are apart, each relative to its size."""
    pairs = [(ours.detach(), theirs.detach())]
    pairs += zip(torch.autograd.grad(ours, leaves), torch.autograd.grad(theirs, leaves), strict=True)
    return [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in pairs]


def table_case(size: int, rows: int, width: int, depth: int, dtype: torch.dtype, skew: float = 0.0) -> dict[str, Any]:
    """Ids drawn uniformly, or with probability ~ 1 / (rank + 10)^skew."""
    make = torch.Generator(CUDA).manual_seed(0)
    normal: dict[str, Any] = {"generator": make, "device": CUDA, "dtype": dtype}
    query, positive = (torch.randn(rows, depth, **normal).div_(depth**0.25) for _ in range(2))
    table = torch.randn(size, depth, **normal).div_(depth**0.25)
    if skew:
        odds = (torch.arange(size, device=CUDA, dtype=torch.float64) + 10) ** -skew
        ids = torch.searchsorted(
            odds.cumsum(0) / odds.sum(), torch.rand(rows, width, generator=make, device=CUDA).double()
        )
    else:
        ids = torch.randint(0, size, (rows, width), generator=make, device=CUDA)
    leaves = [t.requires_grad_() for t in (query, positive, table)]
    return {"query": query, "positive": positive, "table": table, "ids": ids.clamp_(max=size - 1), "leaves": leaves}


def plain_table(query: Tensor, positive: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    keys = F.embedding(ids, table)
    negatives = torch.einsum("bd,bkd->bk", query, keys)
    logits = torch.cat([(query * positive).sum(1, keepdim=True), negatives], 1).float()
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long, device=CUDA))


def lookups(
    size: int, rows: int, width: int, depth: int, dtype: torch.dtype, top: dict[str, float], skew: float = 0.0,
    compiled: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Per-row ids into a table; the limit reads each key once for each id."""
    case = table_case(size, rows, width, depth, dtype, skew)
    leaves = case.pop("leaves")
    query, positive, table, ids = (case[name] for name in ("query", "positive", "table", "ids"))
    nbytes = (
        rows * width * (depth * table.element_size() + ids.element_size()) + 3 * query.numel() * query.element_size()
    )

    def ours() -> Tensor:
        return info_nce(query, positive, table, ids=ids, impl="fused").loss

    def streamed() -> Tensor:
        return info_nce(query, positive, table, ids=ids, impl="streamed").loss

    def theirs() -> Tensor:
        return plain_table(query, positive, table, ids)

    found: dict[str, Any] = {
        "off": off(ours(), streamed(), leaves),
        "shape": {"M": size, "B": rows, "K": width, "D": depth, "dtype": str(dtype), "skew": skew},
        "forward_bytes": nbytes,
        "forward_limit_ms": nbytes / top["bytes_per_ms"],
        "fused": {"forward": measure(ours, graph=True), "both": measure(both_ways(ours, leaves), graph=True)},
        "eager": {"forward": measure(theirs), "both": measure(both_ways(theirs, leaves))},
    }
    if compiled:
        fast = torch.compile(theirs, dynamic=False)
        found["compile"] = {"both": measure(both_ways(fast, leaves))}
    return found


def queue(rows: int, width: int, depth: int, dtype: torch.dtype, top: dict[str, float]) -> dict[str, Any]:
    """A frozen queue: the loss and the gradient of the query."""
    query, positive = (torch.randn(rows, depth, device=CUDA, dtype=dtype).div_(depth**0.25) for _ in range(2))
    keys = torch.randn(width, depth, device=CUDA, dtype=dtype).div_(depth**0.25)
    query.requires_grad_()
    operations = 4 * rows * width * depth

    def ours(stats: bool = True) -> Tensor:
        return info_nce(query, positive, keys, impl="fused", stats=stats).loss

    def theirs() -> Tensor:
        logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ keys.t()], 1).float()
        return F.cross_entropy(logits, torch.zeros(rows, dtype=torch.long, device=CUDA))

    found: dict[str, Any] = {
        "off": off(ours(), info_nce(query, positive, keys, impl="streamed").loss, [query]),
        "shape": {"B": rows, "K": width, "D": depth, "dtype": str(dtype)},
        "operations": operations,
        "limit_ms": max(keys.numel() * 2 / top["bytes_per_ms"], operations / top["operations_per_ms"]),
        "fused": {"both": measure(both_ways(ours, [query]), graph=True)},
        "fused_without_wins": {"both": measure(both_ways(lambda: ours(False), [query]), graph=True)},
        "eager": {"both": measure(both_ways(theirs, [query]), graph=True)},
    }
    spent = found["fused"]["both"]["graph_ms"]
    found["tflops"] = operations / spent / 1e9
    return found


def batch(rows: int, depth: int, dtype: torch.dtype, top: dict[str, float], plain: bool = True) -> dict[str, Any]:
    """The other rows' positives, both sides trained."""
    query, positive = (
        torch.randn(rows, depth, device=CUDA, dtype=dtype).div_(depth**0.25).requires_grad_() for _ in range(2)
    )
    operations = 8 * rows * rows * depth

    def ours() -> Tensor:
        return info_nce(query, positive, impl="fused").loss

    def theirs() -> Tensor:
        return F.cross_entropy((query @ positive.t()).float(), torch.arange(rows, device=CUDA))

    leaves = [query, positive]
    found: dict[str, Any] = {
        "off": off(ours(), info_nce(query, positive, impl="streamed").loss, leaves) if plain else None,
        "shape": {"B": rows, "D": depth, "dtype": str(dtype)},
        "operations": operations,
        "limit_ms": operations / top["operations_per_ms"],
        "gradients_mib": 2 * query.numel() * query.element_size() / 2**20,
        "fused": {"forward": measure(ours), "both": measure(both_ways(ours, leaves))},
    }
    if plain:
        found["eager"] = {"both": measure(both_ways(theirs, leaves))}
    return found


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:]
    top = ceilings()
    half, full = torch.bfloat16, torch.float32
    cases: dict[str, Callable[[], dict[str, Any]]] = {
        "table 100k": lambda: lookups(100_000, 4096, 1024, 128, half, top),
        "queue": lambda: queue(256, 131_072, 128, half, top),
        "batch 32k": lambda: batch(32_768, 256, half, top),
        "table of BERT4Rec's step": lambda: lookups(3_400, 8_700, 100, 128, full, top, 0.7),
        "table 5M": lambda: lookups(5_000_000, 4096, 1024, 128, half, top),
        "table 100k, drawn by popularity": lambda: lookups(100_000, 4096, 1024, 128, half, top, 1.0),
        "table of ML-1M": lambda: lookups(3_706, 5120, 100, 64, half, top),
        "batch 262k": lambda: batch(262_144, 256, half, top, plain=False),
        "table 100k beside torch.compile": lambda: lookups(100_000, 4096, 1024, 128, half, top, compiled=True),
    }
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "ceilings": top}
    for name, case in cases.items():
        if names and name not in names:
            continue
        found[name] = case()
        torch.cuda.synchronize()
        raise_late()
        torch.cuda.empty_cache()
        write_atomically(out, json.dumps(found, indent=1) + "\n")
        print(name, json.dumps(found[name]), flush=True)


if __name__ == "__main__":
    main()

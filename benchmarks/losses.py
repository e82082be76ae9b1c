"""InfoNCE over many shared negatives, beside info-nce-pytorch and torch's own chunked cross-entropy.

One thread, float32, loss and gradients. All sides get the same vectors of length one. info-nce-pytorch normalises them
again, since it cannot be told not to; the rows named "normalising too" charge negwise for that as well.

Memory is the peak above what was resident before the call, in a process of its own for each case (an allocator that
keeps what it once had would hide the second case's); gradients of the inputs are in place before the call.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import peers
from benchmarks.table import Row, peak_extra_mb, seconds
from negwise.losses import info_nce

TEMPERATURE = 0.1
TABLE = (256, 3416, 1000, 64)
SHAPE = (256, 131_072, 128)  # B, K, D
HUGE = (32, 1_000_000, 256)
BATCH_CHUNKS = (16, 32, 64, 128, 256)


def peer() -> ModuleType:
    """info-nce-pytorch from its package, fetched where it is not there."""
    try:
        return peers.module("info-nce-pytorch")
    except ImportError:
        peers.install(["info-nce-pytorch"])
        return peers.module("info-nce-pytorch")


def vectors(shape: tuple[int, int, int], trainable: bool) -> tuple[Tensor, Tensor, Tensor]:
    """``query`` (B, D) that wants a gradient, ``positive`` (B, D), ``negatives`` (K, D); gradients allocated."""
    rows, count, depth = shape
    torch.manual_seed(0)
    query, positive, negatives = (F.normalize(torch.randn(n, depth)) for n in (rows, rows, count))
    for tensor in [query, negatives] if trainable else [query]:
        tensor.requires_grad_()
        tensor.grad = torch.zeros_like(tensor)
    return query, positive, negatives


Step = Callable[[Tensor, Tensor, Tensor], Tensor]


def ours(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
    return info_nce(query, positive, negatives, temperature=TEMPERATURE).loss


def ours_normalising(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
    return ours(F.normalize(query), F.normalize(positive), F.normalize(negatives))


def naive(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
    """Eq. 1 in the two plain lines that everyone writes."""
    logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ negatives.t()], 1) / TEMPERATURE
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long))


def theirs(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
    loss: Tensor = peer().info_nce(query, positive, negatives, temperature=TEMPERATURE)
    return loss


def linear_cross_entropy(chunk: int, table: Tensor) -> Step:
    """torch's fused head over positives and negatives in one table, which is built outside the clock."""
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=chunk)

    def step(query: Tensor, positive: Tensor, negatives: Tensor) -> Tensor:
        del negatives
        target = torch.arange(len(positive))
        return F.linear_cross_entropy(query / TEMPERATURE, table, target, options=options)

    return step


def two_products(query: Tensor, negatives: Tensor, chunk: int = 1024) -> None:
    """The floor: nothing but the two matrix products that loss and query gradient are made of."""
    scores, onto = query.new_empty(len(query), chunk), torch.zeros_like(query)
    with torch.no_grad():
        for block in torch.split(negatives, chunk):
            torch.mm(query, block.t(), out=scores)
            onto.addmm_(scores, block)


def timed(step: Step, query: Tensor, positive: Tensor, negatives: Tensor) -> Callable[[], None]:
    def call() -> None:
        query.grad = negatives.grad = None
        torch.autograd.backward(step(query, positive, negatives))

    return call


STEPS: dict[str, Step] = {"ours": ours, "naive": naive, "theirs": theirs}


def memory(name: str, shape: tuple[int, int, int], trainable: bool) -> float:
    """Peak extra MB of one step in a fresh process."""
    code = (
        "import torch; torch.set_num_threads(1); from benchmarks import losses; "
        f"print(losses.measure_memory({name!r}, {shape!r}, {trainable!r}))"
    )
    # The allocator gives back at once what is freed, so that nothing hides in what an earlier call left behind.
    environment = os.environ | {"MALLOC_TRIM_THRESHOLD_": "0", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(done.stdout.split()[-1])


def measure_memory(name: str, shape: tuple[int, int, int], trainable: bool) -> float:
    """Of this process: gradients are in place, and a small step has loaded what is loaded once."""
    step = STEPS[name]
    torch.autograd.backward(step(*vectors((2, 3, shape[2]), trainable)))
    query, positive, negatives = vectors(shape, trainable)
    return peak_extra_mb(lambda: torch.autograd.backward(step(query, positive, negatives)))


def run() -> list[Row]:
    torch.set_num_threads(1)
    return [*_frozen(), *_trainable(), *_huge(), *_table()]


def _table() -> list[Row]:
    """Ids for each row into a table that learns: counted first, as ``auto`` does, beside looking each of them up."""
    rows, size, width, depth = TABLE
    query, positive, table = (torch.randn(n, depth, requires_grad=True) for n in (rows, rows, size))
    ids = torch.randint(0, size, (rows, width))

    def plain() -> Tensor:
        negatives = torch.einsum("bd,bkd->bk", query, F.embedding(ids, table))
        logits = torch.cat([(query * positive).sum(1, keepdim=True), negatives], 1)
        return F.cross_entropy(logits, torch.zeros(rows, dtype=torch.long))

    def by(impl: str) -> Callable[[], Tensor]:
        return lambda: info_nce(query, positive, table, ids=ids, impl=impl).loss

    def step(loss: Callable[[], Tensor]) -> Callable[[], None]:
        def call() -> None:
            query.grad = positive.grad = table.grad = None
            torch.autograd.backward(loss())

        return call

    spent = seconds({"auto": step(by("auto")), "streamed": step(by("streamed")), "plain": step(plain)}, repeats=5)
    work = f"{width:,} ids for each of {rows} rows into a table of {size:,} x {depth}, trainable"
    return [
        Row(work, "against plain torch", spent["plain"] / spent["auto"], 1.0),
        Row(work, "against looking ids up block by block", spent["streamed"] / spent["auto"], 1.0),
    ]


def _frozen() -> list[Row]:
    query, positive, negatives = vectors(SHAPE, trainable=False)
    table = torch.cat([positive, negatives])
    steps: dict[str, Step] = {"ours": ours, "normalising": ours_normalising, "theirs": theirs, "naive": naive}
    steps |= {f"linear {chunk}": linear_cross_entropy(chunk, table) for chunk in BATCH_CHUNKS}
    calls: dict[str, Callable[[], object]] = {
        name: timed(step, query, positive, negatives) for name, step in steps.items()
    }
    spent = seconds(calls | {"floor": lambda: two_products(query.detach(), negatives)}, repeats=5)
    best = min(spent[f"linear {chunk}"] for chunk in BATCH_CHUNKS)
    work = "shared frozen negatives, 256 x 131,072 x 128, win rate included"
    extra, plain = memory("ours", SHAPE, False), memory("naive", SHAPE, False)
    return [
        Row(work, "against info-nce-pytorch", spent["theirs"] / spent["ours"], 2.5),
        Row(work, "against info-nce-pytorch, normalising too", spent["theirs"] / spent["normalising"]),
        Row(work, "against F.linear_cross_entropy at its best chunk", best / spent["ours"], 1.2),
        Row(work, "against plain torch", spent["naive"] / spent["ours"]),
        Row(work, "time", 1e3 * spent["ours"], unit="ms"),
        Row(work, "of the two matrix products alone", spent["ours"] / spent["floor"], better="lower"),
        Row(work, "extra memory", extra, better="lower", unit="MB"),
        Row(work, "extra memory of plain torch's", 100 * extra / plain, 5, "lower", "%"),
    ]


def _trainable() -> list[Row]:
    query, positive, negatives = vectors(SHAPE, trainable=True)
    steps: dict[str, Step] = {"ours": ours, "normalising": ours_normalising, "theirs": theirs, "naive": naive}
    spent = seconds({name: timed(step, query, positive, negatives) for name, step in steps.items()}, repeats=5)
    work = "shared trainable negatives, 256 x 131,072 x 128, win rate included"
    # What autograd returns for the negatives is a gradient, in place or not: not counted on either side.
    gradient = negatives.numel() * negatives.element_size() / 1e6
    extra, plain = memory("ours", SHAPE, True) - gradient, memory("naive", SHAPE, True) - gradient
    return [
        Row(work, "against info-nce-pytorch", spent["theirs"] / spent["ours"], 1.2),
        Row(work, "against info-nce-pytorch, normalising too", spent["theirs"] / spent["normalising"]),
        Row(work, "against plain torch", spent["naive"] / spent["ours"]),
        Row(work, "time", 1e3 * spent["ours"], unit="ms"),
        Row(work, "extra memory", extra, better="lower", unit="MB"),
        Row(work, "extra memory of plain torch's", 100 * extra / plain, 10, "lower", "%"),
    ]


def _huge() -> list[Row]:
    work = "shared negatives, 32 x 1,000,000 x 256"
    gradient = HUGE[1] * HUGE[2] * 4 / 1e6
    return [
        Row(work, "extra memory, frozen", memory("ours", HUGE, False), 64, "lower", "MB"),
        Row(work, "extra memory, trainable", memory("ours", HUGE, True) - gradient, 64, "lower", "MB"),
    ]

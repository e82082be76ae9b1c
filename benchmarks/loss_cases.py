"""The loss alone, for each place negatives come from: kernels beside eager torch, torch.compile and the peers.

Inputs are random directions of squared length 10, scores their dot products: unit vectors at a temperature of 0.1.
B rows, K negatives each, M rows of a table, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import limits, peers
from benchmarks.cases import Found, bar
from benchmarks.sides import (
    Bench,
    Side,
    beside,
    extra,
    fused_side,
    of,
    off,
    over,
    ratio,
    share,
    streamed,
    with_fused,
)
from negwise.draws import Key
from negwise.losses import info_nce
from negwise.samplers import Uniform


def plain_table(query: Tensor, positive: Tensor, table: Tensor, ids: Tensor) -> Tensor:
    keys = F.embedding(ids, table)
    negatives = torch.einsum("bd,bkd->bk", query, keys)
    logits = torch.cat([(query * positive).sum(1, keepdim=True), negatives], 1).float()
    return F.cross_entropy(logits, torch.zeros(len(query), dtype=torch.long, device=query.device))


def plain_batch(query: Tensor, positive: Tensor) -> Tensor:
    return F.cross_entropy((query @ positive.t()).float(), torch.arange(len(query), device=query.device))


def drawn(size: int, rows: int, width: int, skew: float, make: torch.Generator) -> Tensor:
    """Ids drawn uniformly, or with probability ~ 1 / (rank + 10)^skew."""
    if not skew:
        return torch.randint(0, size, (rows, width), generator=make, device=make.device)
    odds = (torch.arange(size, device=make.device, dtype=torch.float64) + 10) ** -skew
    where = torch.rand(rows, width, generator=make, device=make.device).double()
    return torch.searchsorted(odds.cumsum(0) / odds.sum(), where).clamp_(max=size - 1)


def table_case(
    bench: Bench, size: int, rows: int, width: int, depth: int, *, skew: float = 0.0, full: bool = False,
    bars: Callable[[Found, float, float], list[Found]] = lambda *_: [],
) -> Found:  # fmt: skip
    """Per-row ids into a table; ``full``: beside torch.compile and the peers too, and with the table frozen."""
    make = bench.generator
    query, positive, table = (peers.vectors(make, n, depth, dtype=bench.dtype) for n in (rows, rows, size))
    ids = drawn(size, rows, width, skew, make)
    leaves = [tensor.requires_grad_() for tensor in (query, positive, table)]

    def eager() -> Tensor:
        return plain_table(query, positive, table, ids)

    sides, notes = with_fused(fused_side(query, positive, table, ids=ids), {"eager": Side(eager)})
    if full:
        theirs, left_out = beside("rows", query, positive, lambda: F.embedding(ids, table))
        sides |= {"torch.compile": Side(torch.compile(eager, dynamic=False)), **theirs}
        notes |= left_out
    found = notes | bench.compare(sides, leaves, streamed(query, positive, table, ids=ids))
    element = table.element_size()
    forward = limits.table_forward(rows, width, depth, element).ms(bench.top)
    both = limits.table_both(size, rows, width, depth, element).ms(bench.top)
    table_mib = table.numel() * element / 2**20
    found |= {
        "shape": {"M": size, "B": rows, "K": width, "D": depth, "dtype": str(bench.dtype), "skew": skew},
        "limit_ms": {"forward": forward, "both": both},
        "table_mib": table_mib,
        "extra_mib": extra(found, leaves),
    }
    if full:
        found["frozen table"] = frozen(bench, query, positive, table.detach(), ids)
    return found | {"bars": bars(found, forward, table_mib)}


def small_case(bench: Bench, size: int, rows: int, widths: Sequence[int], depth: int) -> Found:
    """A table with not many more rows than K: ids looked up one by one, against ids that are counted first."""
    dtype = torch.bfloat16 if bench.device.type == "cuda" else torch.float16  # the interpreter has no bfloat16 products
    make = bench.generator
    found: Found = {}
    query, positive, table = (peers.vectors(make, n, depth, dtype=dtype) for n in (rows, rows, size))
    leaves = [tensor.requires_grad_() for tensor in (query, positive, table)]
    for width in widths:
        ids = drawn(size, rows, width, 0.0, make)
        made = {impl: fused_side(query, positive, table, impl, ids=ids) for impl in ("fused", "counted")}
        sides = {impl: side for impl, side in made.items() if isinstance(side, Side)}
        notes = {f"{impl}, left out": side for impl, side in made.items() if isinstance(side, str)}
        found[f"K = {width}"] = notes | bench.compare(sides, leaves, streamed(query, positive, table, ids=ids))
    return found | {"shape": {"M": size, "B": rows, "D": depth, "dtype": str(dtype)}}


def frozen(bench: Bench, query: Tensor, positive: Tensor, table: Tensor, ids: Tensor) -> Found:
    """The same where the table wants no gradient."""
    leaves = [query, positive]
    eager = Side(lambda: plain_table(query, positive, table, ids), forward=False)
    sides, notes = with_fused(fused_side(query, positive, table, ids=ids), {"eager": eager})
    found = notes | bench.compare(sides, leaves, None)
    return found | {"extra_mib": extra(found, leaves)}


def bars_100k(found: Found, limit: float, _: float) -> list[Found]:
    return [
        bar("forward over the bandwidth limit", over(of(found, "fused", "forward"), limit), 1.3, "lower", aim=1.0),
        bar("forward and backward against eager", ratio(found, "eager", "fused"), 4.0, aim=6.0),
        bar("forward and backward against torch.compile", ratio(found, "torch.compile", "fused"), 8.0),
        bar("memory of eager's", share(found, "fused", "eager"), 8.0, "lower", "%"),
    ]


def bars_5m(found: Found, _: float, table_mib: float) -> list[Found]:
    beside_gradient, of_frozen = found["extra_mib"], found["frozen table"]["extra_mib"]
    return [
        bar("forward and backward against eager", ratio(found, "eager", "fused"), 4.0, aim=8.0),
        bar("memory beside the gradient, of a table's", over(beside_gradient, table_mib), 0.99, "lower"),
        bar("memory with a frozen table, of a table's", over(of_frozen, table_mib), 0.99, "lower"),
    ]


def inside(bench: Bench, size: int, rows: int, width: int, depth: int) -> Found:
    """Ids drawn where they are read, against the same ids drawn before; the sampler's own work is in both times.

    "plan at hand" and "ids at hand" leave it out.
    """
    make = bench.generator
    query, positive, table = (peers.vectors(make, n, depth, dtype=bench.dtype) for n in (rows, rows, size))
    leaves = [tensor.requires_grad_() for tensor in (query, positive, table)]
    sampler: Any = Uniform(size)
    wanted = torch.randint(0, size, (rows,), generator=make, device=bench.device)
    if not hasattr(sampler, "plan"):
        return {"note": "this sampler has no plan(), so that ids cannot be drawn in the kernel"}

    def planned() -> Tensor:
        draw = sampler.plan(wanted, width, Key(0, 0))
        return info_nce(query, positive, table, ids=draw, impl="fused").loss

    def before() -> Tensor:
        ids = sampler(wanted, width, Key(0, 0)).ids
        return info_nce(query, positive, table, ids=ids, impl="fused").loss

    side = fused_side(query, positive, table, ids=sampler(wanted, width, Key(0, 0)).ids)
    if isinstance(side, str):
        return {"fused, left out": side}
    plan = sampler.plan(wanted, width, Key(0, 0))
    ready = Side(lambda: info_nce(query, positive, table, ids=plan, impl="fused").loss, graph=True)
    sides = {
        "drawn in the kernel": Side(planned), "plan at hand": ready, "drawn before": Side(before), "ids at hand": side,
    }  # fmt: skip
    found = bench.compare(sides, leaves, side)
    return found | {"shape": {"M": size, "B": rows, "K": width, "D": depth, "dtype": str(bench.dtype)}}


def queue_case(bench: Bench, rows: int, width: int, depth: int) -> Found:
    """A frozen queue: the loss and the gradient of the query."""
    make = bench.generator
    query, positive, keys = (peers.vectors(make, n, depth, dtype=bench.dtype) for n in (rows, rows, width))
    leaves = [query.requires_grad_()]

    def eager() -> Tensor:
        logits = torch.cat([(query * positive).sum(1, keepdim=True), query @ keys.t()], 1).float()
        return F.cross_entropy(logits, torch.zeros(rows, dtype=torch.long, device=query.device))

    others = {"eager": Side(eager, graph=True), "torch.compile": Side(torch.compile(eager, dynamic=False), graph=True)}
    theirs, left_out = beside("shared", query, positive, lambda: keys)
    sides, notes = with_fused(fused_side(query, positive, keys), {**others, **theirs})
    without = fused_side(query, positive, keys, stats=False)
    if isinstance(without, Side):
        sides["fused, without the win rate"] = without
    found = notes | left_out | bench.compare(sides, leaves, streamed(query, positive, keys))
    work = limits.queue(rows, width, depth, keys.element_size())

    def rate(side: str) -> float | None:
        spent = of(found, side)
        return None if spent is None else work.operations / spent / 1e9

    return found | {
        "shape": {"B": rows, "K": width, "D": depth, "dtype": str(bench.dtype)},
        "limit_ms": {"both": work.ms(bench.top)},
        "operations": work.operations,
        "bars": [
            bar("loss and gradient against eager", ratio(found, "eager", "fused"), 5.0),
            bar("rate", rate("fused, without the win rate"), 250.0, unit="TFLOP/s", aim=work.operations / 0.04 / 1e9),
            bar("rate, with the win rate", rate("fused"), 250.0, unit="TFLOP/s"),
        ],
    }


def batch_case(bench: Bench, rows: int, depth: int, plain: bool = True) -> Found:
    """The other rows' positives, both sides trained; without ``plain``, sides that keep all scores are left out."""
    make = bench.generator
    query, positive = (peers.vectors(make, rows, depth, dtype=bench.dtype) for _ in range(2))
    leaves = [tensor.requires_grad_() for tensor in (query, positive)]

    eager = partial(plain_batch, query, positive)
    theirs, left_out = beside("batch", query, positive, None)
    if not plain:
        theirs = {name: replace(side, forward=False) for name, side in theirs.items() if name in LEAN}
    others = {"eager": Side(eager), "torch.compile": Side(torch.compile(eager, dynamic=False))} if plain else {}
    sides, notes = with_fused(fused_side(query, positive, None), {**others, **theirs})
    truth = streamed(query, positive, None) if plain else None
    found = notes | left_out | bench.compare(sides, leaves, truth)
    if not plain:
        found["spot check"] = spot_check(query, positive) if "fused" in sides else None
    work = limits.batch(rows, depth, query.element_size())
    held = extra(found, leaves)
    if plain:
        megabytes = None if held is None else held * 2**20 / 1e6
        bars = [
            bar("forward and backward against eager", ratio(found, "eager", "fused"), 1.2, aim=3.0),
            bar("extra memory", megabytes, 200.0, "lower", "MB"),
        ]
    else:
        bars = [bar("runs", None if held is None else 1.0, 1.0, unit="")]
    return found | {
        "shape": {"B": rows, "D": depth, "dtype": str(bench.dtype)},
        "limit_ms": {"both": work.ms(bench.top)},
        "operations": work.operations,
        "extra_mib": held,
        "bars": bars,
    }


def wide_case(bench: Bench, rows: int, depths: Sequence[int]) -> Found:
    """In-batch, vectors wider than those of the bars: scores are added up in parts, in smaller tiles."""
    found: Found = {}
    for depth in depths:
        query, positive = (peers.vectors(bench.generator, rows, depth, dtype=bench.dtype) for _ in range(2))
        leaves = [tensor.requires_grad_() for tensor in (query, positive)]
        truth = streamed(query, positive, None)
        others = {"streamed": truth, "eager": Side(partial(plain_batch, query, positive))}
        sides, notes = with_fused(fused_side(query, positive, None), others)
        found[f"D = {depth}"] = notes | bench.compare(sides, leaves, truth)
    return found | {"shape": {"B": rows, "dtype": str(bench.dtype)}}


LEAN = ("inf-cl", "cut-cross-entropy, as it comes", "cut-cross-entropy, every gradient")
"""Peers that do not keep all scores."""


def spot_check(query: Tensor, positive: Tensor, rows: int = 128) -> list[float]:
    """`off` of the first rows' losses and query gradients, where a whole plain pass would not fit."""
    found = info_nce(query, positive, impl="fused", reduction="none").loss
    (ours,) = torch.autograd.grad(found.sum(), [query])
    first = query[:rows].detach().float().requires_grad_()
    own = torch.arange(len(first), device=query.device)
    loss = F.cross_entropy(first @ positive.detach().float().t(), own, reduction="none")
    (theirs,) = torch.autograd.grad(loss.sum(), [first])
    return [off(found[:rows].detach(), loss.detach()), off(ours[:rows], theirs)]

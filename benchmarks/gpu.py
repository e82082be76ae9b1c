"""The one clock for a GPU: times, memory and ceilings.

A call is timed by CUDA events with the L2 cache overwritten before it, in up to three ways:

- ``ms``: as called, so that the GPU also waits for Python where Python is slower.
- ``queued_ms``: behind a pause of the GPU in which all launches are queued. This is the GPU's own time, of eager torch
  as of a kernel. ``late`` counts repeats in which the pause was too short.
- ``graph_ms``: replayed from a CUDA graph.

Each is a median. `counted` says which one a bar is held against. On a CPU there is only ``ms``, by a plain clock: it
serves to try the code, not to measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

Call = Callable[[], object]

SHORT = 0.1
"""Milliseconds below which a graph's replay is what counts."""
LONG = 20.0
"""Milliseconds above which what Python adds to a call is not worth a second measurement."""
SLOW = 3_000.0
"""Milliseconds above which one call has to do, by a plain clock."""
CYCLES = 2_000_000
"""Of the GPU's clock in a millisecond, at most about; the pause is only ever too long by that."""


def times(
    call: Call, device: torch.device, *, repeats: int = 20, most: float = 400.0, pause: float = 0.0
) -> tuple[list[float], int]:
    """Milliseconds of each call, about ``most`` in all; and in how many of them ``pause`` ms did not suffice."""
    once = _cpu_clock if device.type == "cpu" else _event_clock(device, pause)
    first, _ = once(call)  # the first one warms up, and says how many can be had
    for _ in range(2 if first < LONG else 0):
        once(call)
    turns = max(2, min(repeats, int(most / max(first, 1e-3))))
    found = [once(call) for _ in range(turns)]
    return [spent for spent, _ in found], sum(late for _, late in found)


def _cpu_clock(call: Call) -> tuple[float, bool]:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start), False


def _event_clock(device: torch.device, pause: float) -> Callable[[Call], tuple[float, bool]]:
    flush = torch.empty(2**28, dtype=torch.int8, device=device)  # several times the L2

    def once(call: Call) -> tuple[float, bool]:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        flush.fill_(1)
        if pause:
            torch.cuda._sleep(int(pause * CYCLES))  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        # Whether the GPU was there before the last launch was queued.
        late = bool(pause) and begin.query()  # type: ignore[no-untyped-call]
        end.synchronize()
        return begin.elapsed_time(end), late

    return once


def median_ms(call: Call, device: torch.device, repeats: int = 20) -> float:
    """The median of a call as called."""
    return float(median(times(call, device, repeats=repeats)[0]))


def measure(call: Call, device: torch.device, graph: bool = False) -> dict[str, Any]:
    """Times and peak memory of a call; ``graph``: also replayed, where that can be recorded."""
    call()  # compiles what it has to
    start = time.perf_counter()
    found: dict[str, Any] = {"peak_mib": peak_mib(call, device)}
    once = 1e3 * (time.perf_counter() - start)
    if once > SLOW:
        return found | {"ms": once, "ms_min": once, "repeats": 1}
    spent, _ = times(call, device)
    found |= {"ms": float(median(spent)), "ms_min": min(spent), "repeats": len(spent)}
    if device.type == "cpu":
        return found
    if found["ms"] < LONG:
        spent, late = times(call, device, pause=2 * _host_ms(call, device) + 0.2)
        found |= {"queued_ms": float(median(spent)), "late": late}
    if graph:
        try:
            found["graph_ms"] = float(median(times(replayed(call), device)[0]))
        except RuntimeError as error:
            found["graph"] = f"could not be recorded: {error}"
    return found


def counted(found: dict[str, Any]) -> float:
    """The milliseconds that a bar is held against: the GPU's own time; a replay's where that is short."""
    own = float(found.get("queued_ms", found["ms"]))
    return float(found["graph_ms"]) if "graph_ms" in found and own < SHORT else own


def _host_ms(call: Call, device: torch.device) -> float:
    """How long Python takes to queue a call, the slowest of a few times."""
    spent = []
    for _ in range(4):
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        spent.append(1e3 * (time.perf_counter() - start))
    torch.cuda.synchronize(device)
    return max(spent[1:])


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


def peak_mib(call: Call, device: torch.device) -> float | None:
    """The most memory that a call holds above what is held before it; None on a CPU, where nobody counts."""
    if device.type == "cpu":
        call()
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    return float(torch.cuda.max_memory_allocated(device) - before) / 2**20


def extra_mib(forward: dict[str, Any], both: dict[str, Any], gradients: Sequence[Tensor]) -> float | None:
    """Memory beside inputs and gradients. In the forward pass there is no gradient yet, so its peak is all extra."""
    if both["peak_mib"] is None:
        return None
    held = sum(tensor.numel() * tensor.element_size() for tensor in gradients) / 2**20
    return max(float(forward["peak_mib"]), float(both["peak_mib"]) - held)


def ceilings(device: torch.device, tiny: bool = False) -> dict[str, float]:
    """Bytes per ms of a large copy, read and written, and operations per ms of a large bfloat16 product."""
    size, side = (2**16, 64) if tiny else (2**31, 8192)
    source = torch.empty(size, dtype=torch.int8, device=device).random_()
    target = torch.empty_like(source)
    copied = 2 * size / median_ms(lambda: target.copy_(source), device)
    a = torch.randn(side, side, device=device).bfloat16()  # zeros would be faster than real data
    multiplied = 2 * side**3 / median_ms(lambda: a @ a, device)
    return {"bytes_per_ms": copied, "operations_per_ms": multiplied}


def settle(device: torch.device) -> None:
    """Wait for the device, which is where its errors come to light, and give back what is cached."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()

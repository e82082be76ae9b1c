"""A step that is recorded once for each size as a CUDA graph and then replayed, so that the GPU waits for no Python.

A graph has fixed sizes and fixed places in memory. So sizes are round_up up to a few (`padded`), and what a step works
on is copied to where its graph looks. K that changes at every step then costs a recording for each of a few sizes. The
first step of a size runs as it is, which settles what must not happen while recording (memory of the optimizer,
kernels to compile); the second one is recorded. P queries, K negatives each, U candidates.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.losses import fused
from negwise.training.asked import StepInputs

Work = Callable[[], Tensor]
Record = Callable[[Work], Work]
"""Makes of some work what does the same again, on whatever then lies in the same places."""

ROWS, COLUMNS = 4, 2
"""Sizes to an octave: of rows, where what is added costs work, and of K, where it is masked and costs little."""
REPEATED = ("positions", "positives", "numbers", "owners", "allowed")
"""What has an entry for each query and is filled up with the first one's."""
MAX_SIZES = 64
"""Sizes that are kept, each with memory of its own; what comes after them runs as it is."""
SLOTS = 2
"""Places on the host for what is on its way: the next step's is written while this step's is still read."""


def round_up(n: int, to_an_octave: int) -> int:
    """The smallest size that is not below ``n``: powers of two, and evenly spaced ones between them.

    >>> [round_up(n, 2) for n in (1, 2, 3, 5, 7, 9, 100)]
    [1, 2, 3, 6, 8, 12, 128]
    """
    if n <= to_an_octave:
        return n
    step = 1 << max((n - 1).bit_length() - 1 - (to_an_octave.bit_length() - 1), 0)
    return -(-n // step) * step


def pad_sizes(asked: StepInputs) -> StepInputs:
    """The same work in rounded sizes; what has them already is returned as it is.

    Queries that are read off sequences are filled up with the first one, which then has no negatives, hence no loss;
    negatives with masked ones; candidates with the first one, which nobody looks up there.
    """
    parts = asked.tensors()
    width = round_up(asked.width, COLUMNS)
    rows = round_up(len(asked.positives), ROWS) - len(asked.positives) if "positions" in parts else 0
    more = {name: rows for name in REPEATED if name in parts}
    if "candidates" in parts:
        more["candidates"] = round_up(len(parts["candidates"]), ROWS) - len(parts["candidates"])
    if width == asked.width and not any(more.values()):
        return asked
    for name, number in more.items():
        parts[name] = torch.cat([parts[name], parts[name][:1].expand(number, *parts[name].shape[1:])])
    for name in ("negatives", "mask", "log_q"):
        if name in parts:
            parts[name] = F.pad(parts[name], (0, width - asked.width, 0, rows))
    if "counts" in parts:
        parts["counts"] = F.pad(parts["counts"], (0, rows))
    return asked.with_tensors(parts, width)


class GraphedStep:
    """``learn(asked)`` in rounded sizes, by what ``record`` makes of it; by default CUDA graphs on ``device``."""

    def __init__(
        self, learn: Callable[[StepInputs], Tensor], device: torch.device, record: Record | None = None
    ) -> None:
        self.learn, self.device = learn, device
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.record = record or GraphRecorder(self.stream)
        self.sizes: dict[Any, Size] = {}

    def __call__(self, asked: StepInputs) -> Tensor:
        asked = pad_sizes(asked)
        key = (asked.width, *((name, value.shape) for name, value in asked.tensors().items()))
        if key not in self.sizes:
            # A loss that the kernels cannot take waits for the GPU, which cannot be recorded.
            if len(self.sizes) == MAX_SIZES or len(asked.positives) * asked.width >= fused.PLACES:
                return self.learn(asked.to(self.device))
            self.sizes[key] = Size(asked, self.device)
        size = self.sizes[key]
        if self.stream is None:
            return self._do(size, asked)
        # All on one stream of its own: a recording may not touch the default one, nor what was made there.
        before = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(before)
        with torch.cuda.stream(self.stream):
            found = self._do(size, asked)
        before.wait_stream(self.stream)
        return found

    def _do(self, size: Size, asked: StepInputs) -> Tensor:
        size.put(asked)
        size.uses += 1
        if size.uses == 1:
            return self.learn(size.asked)
        if size.again is None:
            size.again = self.record(lambda: self.learn(size.asked))
        return size.again()


class Size:
    """One size: the memory its work lies in, and how to do it again."""

    def __init__(self, like: StepInputs, device: torch.device) -> None:
        self.asked = like.map(lambda part: torch.empty_like(part, device=device))
        self.uses = 0
        self.again: Work | None = None
        self.slots = [Slot(like) for _ in range(SLOTS)] if device.type == "cuda" else []

    def put(self, asked: StepInputs) -> None:
        if not self.slots:
            for name, value in asked.tensors().items():
                self.asked.tensors()[name].copy_(value)
            return
        self.slots[self.uses % SLOTS].send(asked, self.asked)


class Slot:
    """Memory that a GPU reads by itself, so that the host need not wait while it does."""

    def __init__(self, like: StepInputs) -> None:
        self.asked = like.map(lambda part: torch.empty_like(part, pin_memory=True))
        self.read = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, asked: StepInputs, to: StepInputs) -> None:
        self.read.synchronize()  # until what was here before has been read
        pinned, there = self.asked.tensors(), to.tensors()
        for name, value in asked.tensors().items():
            pinned[name].copy_(value)
            there[name].copy_(pinned[name], non_blocking=True)
        self.read.record()


class GraphRecorder:
    """Records CUDA graphs that share their memory: they are replayed one after the other, never two at once."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.pool: Any = None

    def __call__(self, work: Work) -> Work:
        graph = torch.cuda.CUDAGraph()
        # Another thread makes the next step meanwhile; what it does is no part of the recording.
        with (
            no_garbage_collection(),
            torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"),
        ):
            found = work()
        self.pool = graph.pool()

        def again() -> Tensor:
            graph.replay()
            return found.clone()  # the memory of ``found`` is the next graph's too

        return again


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """No garbage is collected meanwhile: graphs of a run before may be in it, and to free one ends any recording."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def obstacle_to_graphs(fabric: Any, model: nn.Module, optimizer: torch.optim.Optimizer) -> str | None:
    """Why the steps of a run cannot be recorded; None where they can."""
    if fabric.device.type != "cuda" or fabric.world_size > 1:
        return (
            f"only the work of one CUDA device is recorded, and this run has {fabric.world_size} process(es) on "
            f"{fabric.device.type}"
        )
    if not getattr(model, "graph_safe", False):
        return (
            f"{type(model).__name__} does not say that its work follows from the sizes of its input alone "
            "(graph_safe = True)"
        )
    if any("capturable" not in group for group in optimizer.param_groups):
        return f"{type(optimizer).__name__} cannot be recorded; torch.optim.Adam can"
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if hooked or type(optimizer).__module__.split(".")[:2] != ["torch", "optim"]:
        return f"{type(optimizer).__name__} has hooks or a step of its own, whose Python a replay would leave out"
    wide = any(weight.dtype == torch.float64 for weight in model.parameters())
    missing = fused.obstacle(fabric.device, torch.float64 if wide else torch.float32)
    return None if missing is None else f"{missing}, and a loss without them waits for the GPU"


def resolve_graphs(asked: bool | None, saved: bool | None) -> bool | None:
    """Whether to ask for graphs in a run that began with or without them (``saved``; None: it begins now)."""
    if saved is not None and asked is not None and asked != saved:
        began = "with graphs" if saved else "without graphs"
        raise InputError(
            f"graphs={asked}, but this run began {began}, and to change that would change its results. Leave graphs out"
        )
    return False if saved is False else asked


def use_graphs(
    asked: bool | None, fabric: Any, model: nn.Module, optimizer: torch.optim.Optimizer, moving: bool
) -> bool:
    """Whether a run has graphs; None asks for them wherever they can be had, True refuses to go on without.

    Where it has, the optimizer is made fit to be recorded; ``moving``: its learning rates change.
    """
    obstacle = obstacle_to_graphs(fabric, model, optimizer)
    if asked and obstacle is not None:
        raise InputError(f"graphs=True, but {obstacle}. Leave graphs out")
    if asked is False or obstacle is not None:
        for group in optimizer.param_groups:
            if "capturable" in group:  # as in the checkpoint of a run that had graphs where it began
                group["capturable"] = optimizer.defaults["capturable"]
        return False
    for group in optimizer.param_groups:
        group["capturable"] = True
        if moving:
            group["lr"] = torch.tensor(float(group["lr"]), device=fabric.device)
    for state in optimizer.state.values():  # of a run that goes on: what counts steps has to be on the GPU too
        if isinstance(state.get("step"), Tensor):
            state["step"] = state["step"].to(fabric.device, torch.float32)
    return True

"""Steps as CUDA graphs: recorded once for each size and then replayed, so that the GPU does not wait for Python.

A graph has fixed sizes and fixed places in memory. So sizes are rounded up to a few (`pad_sizes`), and the inputs of a
step are copied to where its graph reads them. A K that changes at every step then costs a recording for each of a few
sizes. The first step of a size runs eagerly: that does what must not happen while recording (memory of the optimizer,
kernels to compile). The second one is recorded. P queries, K negatives each, U candidates.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.errors import InputError
from negwise.losses import fused, info_nce
from negwise.protocols import Loss
from negwise.training.forward_pass import StepInputs

Work = Callable[[], Tensor]
Record = Callable[[Work], Work]
"""Turns work into something that repeats it, on whatever then lies in the same memory."""

ROWS, COLUMNS = 4, 2
"""Sizes between two powers of two: of rows, where padding costs work, and of K, where it is masked and costs little."""
REPEATED = ("positions", "positives", "numbers", "owners", "allowed")
"""Inputs with an entry for each query; padding repeats the first one's."""
MAX_SIZES = 64
"""Sizes that are kept, each with memory of its own; then the least recently used one makes room."""
SLOTS = 2
"""Host buffers of a size: the next step's inputs are written while this step's are still being read."""


def round_up(n: int, per_octave: int) -> int:
    """The smallest size that is not below ``n``: powers of two, and evenly spaced ones between them.

    >>> [round_up(n, 2) for n in (1, 2, 3, 5, 7, 9, 100)]
    [1, 2, 3, 6, 8, 12, 128]
    """
    if n <= per_octave:
        return n
    step = 1 << max((n - 1).bit_length() - 1 - (per_octave.bit_length() - 1), 0)
    return -(-n // step) * step


def pad_sizes(inputs: StepInputs) -> StepInputs:
    """The same work in rounded sizes; inputs that have them already are returned as they are.

    Queries that are read off sequences are padded with the first one, which then has no negatives, hence no loss;
    negatives with masked ones; candidates with the first one, which nobody looks up there.
    """
    parts = inputs.tensors()
    width = round_up(inputs.width, COLUMNS)
    rows = round_up(len(inputs.positives), ROWS) - len(inputs.positives) if "positions" in parts else 0
    more = {name: rows for name in REPEATED if name in parts}
    if "candidates" in parts:
        more["candidates"] = round_up(len(parts["candidates"]), ROWS) - len(parts["candidates"])
    if width == inputs.width and not any(more.values()):
        return inputs
    for name, number in more.items():
        parts[name] = torch.cat([parts[name], parts[name][:1].expand(number, *parts[name].shape[1:])])
    for name in ("negatives", "mask", "log_q"):
        if name in parts:
            parts[name] = F.pad(parts[name], (0, width - inputs.width, 0, rows))
    for name in ("counts", "given"):
        if name in parts:
            parts[name] = F.pad(parts[name], (0, rows))
    return inputs.with_tensors(parts, width)


class GraphedStep:
    """``learn(inputs)`` in rounded sizes, by what ``record`` makes of it; by default CUDA graphs on ``device``."""

    def __init__(
        self,
        learn: Callable[[StepInputs], Tensor],
        device: torch.device,
        record: Record | None = None,
        max_sizes: int = MAX_SIZES,
    ) -> None:
        self.learn, self.device, self.max_sizes = learn, device, max_sizes
        self.stream: Any = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self.record = record or GraphRecorder(self.stream)
        self.sizes: OrderedDict[Any, Size] = OrderedDict()  # the least recently used first

    def __call__(self, inputs: StepInputs) -> Tensor:
        inputs = pad_sizes(inputs)
        # A loss that the kernels cannot take waits for the GPU, which cannot be recorded.
        if len(inputs.positives) * inputs.width >= fused.PLACES:
            return self.learn(inputs.to(self.device))
        size = self._size(inputs)
        if self.stream is None:
            return self._do(size, inputs)
        # All on one stream of its own: a recording may not touch the default one, nor what was made there.
        before = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(before)
        with torch.cuda.stream(self.stream):
            found = self._do(size, inputs)
        before.wait_stream(self.stream)
        return found

    def _size(self, inputs: StepInputs) -> Size:
        key = (inputs.width, *((name, value.shape) for name, value in inputs.tensors().items()))
        if key not in self.sizes:
            if len(self.sizes) == self.max_sizes:
                if self.stream is not None:
                    self.stream.synchronize()  # a graph may not be freed while it runs
                self.sizes.popitem(last=False)
            self.sizes[key] = Size(inputs, self.device)
        self.sizes.move_to_end(key)
        return self.sizes[key]

    def _do(self, size: Size, inputs: StepInputs) -> Tensor:
        size.put(inputs)
        size.uses += 1
        if size.uses == 1:
            return self.learn(size.inputs)
        if size.replay is None:
            size.replay = self.record(lambda: self.learn(size.inputs))
        return size.replay()


class Size:
    """One size: the memory of its inputs, and how to repeat its work."""

    def __init__(self, like: StepInputs, device: torch.device) -> None:
        self.inputs = like.map(lambda part: torch.empty_like(part, device=device))
        self.uses = 0
        self.replay: Work | None = None
        self.slots = [HostBuffer(like) for _ in range(SLOTS)] if device.type == "cuda" else []

    def put(self, inputs: StepInputs) -> None:
        if not self.slots:
            for name, value in inputs.tensors().items():
                self.inputs.tensors()[name].copy_(value)
            return
        self.slots[self.uses % SLOTS].send(inputs, self.inputs)


class HostBuffer:
    """Pinned memory, which a GPU reads by itself, so that the host need not wait."""

    def __init__(self, like: StepInputs) -> None:
        self.inputs = like.map(lambda part: torch.empty_like(part, pin_memory=True))
        self.read = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, inputs: StepInputs, to: StepInputs) -> None:
        self.read.synchronize()  # until what was here before has been read
        pinned, there = self.inputs.tensors(), to.tensors()
        for name, value in inputs.tensors().items():
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

        def replay() -> Tensor:
            graph.replay()
            return found.clone()  # the memory of ``found`` is the next graph's too

        return replay


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """No garbage is collected meanwhile: it may hold graphs of an earlier run, and freeing one ends any recording."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def obstacle_to_graphs(fabric: Any, model: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss) -> str | None:
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
    if loss is not info_nce:
        return f"the loss is {loss!r}, and only info_nce has kernels that can be recorded"
    if any("capturable" not in group for group in optimizer.param_groups):
        return f"{type(optimizer).__name__} cannot be recorded; torch.optim.Adam can"
    hooked = optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks
    if hooked or type(optimizer).__module__.split(".")[:2] != ["torch", "optim"]:
        return f"{type(optimizer).__name__} has hooks or a step of its own, whose Python a replay would leave out"
    wide = any(weight.dtype == torch.float64 for weight in model.parameters())
    missing = fused.obstacle(fabric.device, torch.float64 if wide else torch.float32)
    return None if missing is None else f"{missing}, and a loss without them waits for the GPU"


def resolve_graphs(requested: bool | None, saved: bool | None) -> bool | None:
    """Whether to ask for graphs in a run that began with or without them (``saved``; None: it begins now)."""
    if saved is not None and requested is not None and requested != saved:
        began = "with graphs" if saved else "without graphs"
        raise InputError(
            f"graphs={requested}, but this run began {began}, and a change would alter its results. Leave graphs out"
        )
    return False if saved is False else requested


def use_graphs(
    requested: bool | None,
    fabric: Any,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loss: Loss,
    moving: bool,
) -> bool:
    """Whether a run has graphs. None takes them wherever they are available, True refuses to train without.

    Where it has, the optimizer is prepared for recording; ``moving``: its learning rates change.
    """
    obstacle = obstacle_to_graphs(fabric, model, optimizer, loss)
    if requested and obstacle is not None:
        raise InputError(f"graphs=True, but {obstacle}. Leave graphs out")
    if requested is False or obstacle is not None:
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

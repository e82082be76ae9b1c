"""Where a run takes place: device, precision, processes, threads, random generators, and what Ctrl-C does."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist

from negwise.errors import InputError, require

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_DEFAULTS = {_TRIM_THRESHOLD: 64 << 20, _MMAP_THRESHOLD: 32 << 20}
"""glibc's ``mallopt``: what it is told, and the largest values that it comes to by itself."""
_KEPT = {_TRIM_THRESHOLD: (1 << 31) - 1, _MMAP_THRESHOLD: 1 << 30}


def make_fabric(device: str = "auto", precision: str = "32-true") -> Any:
    """A launched Lightning Fabric: one process, or as many as ``torchrun`` started."""
    fabric = require("lightning_fabric", extra="train")
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("device='cuda', but torch finds no GPU here. Type device 'cpu', or 'auto'")
    world = int(os.environ.get("WORLD_SIZE", "1"))
    here = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    strategy: Any = "auto"
    if world > 1:
        # Buffers are tables of words that never change: sending them round at every step would be most of the traffic.
        strategy = require("lightning_fabric.strategies", extra="train").DDPStrategy(broadcast_buffers=False)
    made = fabric.Fabric(
        accelerator={"auto": "auto", "cpu": "cpu", "cuda": "cuda"}[device] if torch.cuda.is_available() else "cpu",
        devices=here,
        num_nodes=max(1, world // here),
        strategy=strategy,
        precision=precision,
    )
    made.launch()
    if world > 1:
        atexit.register(_leave_group)
    return made


def _leave_group() -> None:
    """Leave the process group in order: its threads may outlive the interpreter and end it with SIGABRT."""
    if dist.is_initialized():
        dist.destroy_process_group()


@contextmanager
def own_generators(device: torch.device) -> Iterator[None]:
    """Leave torch's generators as they were found."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def reseed(seed: int, step: int, rank: int, device: torch.device) -> None:
    """Seed dropout by (seed, step, rank), so that a checkpoint needs no state of a generator.

    Not by torch.manual_seed: that takes a millisecond, and keeps a note for every kind of device that is not in use.
    """
    word = int(np.random.SeedSequence([seed, step, rank]).generate_state(1, np.uint64)[0])
    cuda = device.type == "cuda"
    generator = torch.cuda.default_generators[device.index or 0] if cuda else torch.default_generator
    generator.manual_seed(word)


@contextmanager
def fixed_threads(number: int) -> Iterator[None]:
    """A fixed number of threads: sums on a CPU depend on how many threads share them."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def kept_memory() -> Iterator[None]:
    """Freed memory stays with the process, for the next step.

    By itself glibc gives every large tensor back to the system. A tenth of a step on a CPU then goes into new pages,
    which the system clears first. At the end what is free is given back. Elsewhere than with glibc nothing changes.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    if libc is None or not hasattr(libc, "gnu_get_libc_version"):
        yield
        return
    for name, size in _KEPT.items():
        libc.mallopt(name, size)
    try:
        yield
    finally:
        for name, size in _DEFAULTS.items():
            libc.mallopt(name, size)
        libc.malloc_trim(0)


def resolve_threads(requested: int | None, saved: int | None, may_change: bool = False) -> int:
    """The number of threads of a run: the saved one, unless it ``may_change``, as it may at a pause."""
    if requested is not None and saved is not None and requested != saved and not may_change:
        raise InputError(
            f"threads={requested}, but this run began with {saved}, and another number would change its results. "
            f"Leave threads out, or pass {saved}"
        )
    if may_change and requested is not None:
        return requested
    return saved or requested or torch.get_num_threads()


class Stopped(KeyboardInterrupt):
    """A run was stopped and saved. The message says how to resume it."""


class SignalGuard:
    """Puts off Ctrl-C to the end of the step, so that what is saved is whole.

    While it is open, the first SIGINT or SIGTERM sets ``received``; a second SIGINT stops at once. Only the main thread
    may handle signals; in another one ``received`` stays false.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = True

"""Where a run takes place: device, precision, processes, threads, and the generator behind dropout."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from negwise.errors import InputError, require


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
        atexit.register(_part)
    return made


def _part() -> None:
    """Leave the other processes in order: threads of theirs that outlive the interpreter may end it with SIGABRT."""
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
    """Sums on a CPU depend on how many threads share them, so a run has one number of threads throughout."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def resolve_threads(asked: int | None, saved: int | None) -> int:
    """The number of threads of a run: the saved one, which nobody may ask to change."""
    if asked is not None and saved is not None and asked != saved:
        raise InputError(
            f"threads={asked}, but this run began with {saved}, and another number would change its results. "
            f"Leave threads out, or ask for {saved}"
        )
    return saved or asked or torch.get_num_threads()

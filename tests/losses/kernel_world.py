"""What tests of the kernels share: where they run, memory that nobody wrote, waits that are errors, what is told late.

They run on a GPU, or on demand through Triton's interpreter: ``make test-kernels``.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from loss_accuracy import Results, everything
from torch import Tensor

from negwise.losses import raise_deferred_errors

GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
THERE = importlib.util.find_spec("triton") is not None
kernels = pytest.mark.skipif(
    not (THERE and (GPU or INTERPRETED)), reason="no CUDA device, nor triton with TRITON_INTERPRET=1"
)
only_gpu = pytest.mark.skipif(not GPU or INTERPRETED, reason="no CUDA device")
quiet = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, in the interpreter, at every NaN
DEVICE = torch.device("cuda" if GPU and not INTERPRETED else "cpu")
SLACK = 0.5 if DEVICE.type == "cuda" else 1.0
"""Units in the last place: the interpreter adds up in NumPy's order, which is nobody's."""
DRAWS = range(6 if DEVICE.type == "cuda" else 2)
"""Seeds of the cases that an error is averaged over; the interpreter takes half a second for one."""


@contextmanager
def poisoned() -> Iterator[None]:
    """Memory that nobody has written yet is NaN, or the largest integer."""
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def waiting_for_nothing() -> Iterator[None]:
    """To wait for the GPU is an error meanwhile."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def fused(case: dict[str, Tensor], impl: str = "fused", **more: object) -> Results:
    with poisoned():
        return everything(case, impl, **more)


def here(case: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.to(DEVICE) for name, tensor in case.items()}


def settle() -> None:
    """Until the GPU is done, so that what it found wrong can be told."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()


@pytest.fixture(autouse=True)
def no_deferred_errors() -> Iterator[None]:
    """Every test of a module that has this name ends with nothing left to tell."""
    yield
    settle()
    raise_deferred_errors()

"""Several processes as one: who am I, gather with gradient, add up counts. Does nothing, correctly, in one process.

**Gradients are those of one process.** Let each rank average its loss over its own rows against the gathered
negatives. The loss of the whole is the mean of the ranks' losses, and so is its gradient: `gather` hands each rank the
*sum* over ranks of what they want from its rows, and the average over ranks that DDP takes of the parameters'
gradients does the rest. Nothing is scaled by the number of ranks::

    keys = gather(positive)  # (all rows, D), with gradient
    names = gather(positive_ids) if there are any, else arange(len(keys))
    own = names[row_offset(len(query)) :][: len(query)]
    loss = info_nce(query, positive, keys, ids=names, positive_ids=own).loss

Ranks with different numbers of rows: ``reduction="sum"``, times ``world_size() / total_rows(len(query))``.

Every rank must call these functions in the same order, and `gather` takes part in backward too. A rank without rows
has no loss to go backward from, and the others would wait for it: give each rank a row at least.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from negwise.errors import InputError


def is_distributed() -> bool:
    """Whether there is a process group."""
    return dist.is_available() and dist.is_initialized()


def process_rank() -> int:
    """The number of this process, 0 where there is only one."""
    return dist.get_rank() if is_distributed() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if is_distributed() else 1


def gather(tensor: Tensor) -> Tensor:
    """All ranks' rows, in the order of the ranks: (B, ...) -> (sum of B, ...). The number of rows may differ.

    Differentiable once: a rank's rows get the sum of the gradients that all ranks have for them.
    """
    if tensor.dim() == 0:
        raise InputError("gather got a single number; expected rows, (B, ...): type tensor[None]")
    if world_size() == 1:
        return tensor
    gathered: Tensor = _Gather.apply(  # type: ignore[no-untyped-call]
        tensor, _row_counts(len(tensor), tensor.device)
    )
    return gathered


def row_offset(rows: int, device: torch.device | str | None = None) -> int:
    """Where this rank's ``rows`` begin among the gathered ones. ``device``: of the tensor that is sent for it."""
    return sum(_row_counts(rows, device)[: process_rank()])


def total_rows(rows: int, device: torch.device | str | None = None) -> int:
    """How many rows all ranks have together. ``device``: of the tensor that is sent for it."""
    return sum(_row_counts(rows, device))


def total(tensor: Tensor) -> Tensor:
    """The sum over ranks. ``tensor`` stays as it is, and in one process it is what is returned."""
    if world_size() == 1:
        return tensor
    summed = tensor.clone()
    dist.all_reduce(summed)
    return summed


def _spoken() -> torch.device:
    """A device whose tensors the process group can send: NCCL takes none from a CPU."""
    kinds = [pair.split(":")[0] for pair in dist.get_backend_config().split(",")]  # as "cpu:gloo,cuda:nccl"
    return torch.device("cpu" if "cpu" in kinds else kinds[0])


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, counts: list[int]) -> Tensor:
        ctx.counts = counts
        most = max(counts)
        # Collectives want equal shapes: each rank sends as many rows as the longest has.
        padded = tensor.new_zeros(most, *tensor.shape[1:])
        padded[: len(tensor)] = tensor
        received = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(received, padded)
        return torch.cat([part[:count] for part, count in zip(received, counts, strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous().clone()
        dist.all_reduce(total)
        start = sum(ctx.counts[: process_rank()])
        return total[start : start + ctx.counts[process_rank()]], None


def _row_counts(rows: int, device: torch.device | str | None) -> list[int]:
    """Rows of each rank, known to all."""
    if world_size() == 1:
        return [rows]
    counts = torch.zeros(world_size(), dtype=torch.int64, device=_spoken() if device is None else device)
    counts[process_rank()] = rows
    dist.all_reduce(counts)
    return counts.tolist()

"""`python -m evidence news|matching|items`: the protocol of a task from data, and its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.protocol import Protocol
from evidence.record import collect, write
from evidence.tasks import (
    EvidenceTask,
    as_published,
    base_training,
    in_precision,
    sized,
    task_named,
    with_model,
    with_name,
    with_turning,
)
from negwise.files import lock_folder
from negwise.jobs import parallelism
from negwise.records import RESULT
from negwise.tasks import make_task, resolve_device


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `reproduce` is asked. None means what the task says; ``fields`` of `TrainRequest` replace those of the task.

    ``paper`` takes the paper's settings; ``turning`` are turning points of ANS; ``name`` is that of the record. On a
    CPU, None as ``precision`` is float32 whatever the task says.
    """

    task: str
    data: str
    k: tuple[int, ...] | None = None
    seeds: int | None = None
    steps: int | None = None
    model: str | None = None
    paper: bool = False
    precision: str | None = None
    turning: tuple[float, ...] = ()
    name: str | None = None
    vectors: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    device: str = "auto"


def reproduce(
    asked: Asked, out: str | Path, *, jobs: int | None = None, tell: Callable[[str], None] = print
) -> list[Path]:
    """Do, or go on with, the protocol in the folder ``out``; writes the record of what is done there."""
    folder = Path(out)
    protocol = protocol_of(asked, folder, jobs)
    make_task(protocol.base)  # what cannot be read or built is told once, and not by every run
    with lock_folder(folder, "job"):
        protocol.check()
        try:
            protocol.run(tell)
        finally:
            files = record_of(protocol)
    return files


def record_of(protocol: Protocol) -> list[Path]:
    """Write the record of whatever is done; nothing before the pilot has ended."""
    if not (protocol.folder("1", protocol.seeds[0]) / RESULT).exists():
        return []
    record, ranks = collect(protocol, resolve_device(protocol.base.device))
    return write(record, ranks, protocol.out)


def task_of(asked: Asked) -> EvidenceTask:
    """The task as it was asked for."""
    task = with_model(task_named(asked.task, asked.data), asked.model)
    task = sized(as_published(task) if asked.paper else task, asked.k, asked.seeds, asked.steps)
    return with_name(with_turning(in_precision(task, asked.precision), asked.turning), asked.name)


def protocol_of(asked: Asked, out: Path, jobs: int | None = None) -> Protocol:
    task, device = task_of(asked), resolve_device(asked.device)
    more: dict[str, Any] = {"precision": "32-true"} if device == "cpu" and asked.precision is None else {}
    base = base_training(task, asked.data, vectors=asked.vectors, device=device, more={**more, **asked.fields})
    side_by_side, _ = parallelism(jobs, device, len(task.ks) * task.seeds)
    return Protocol(out, task, base, task.ks, tuple(range(task.seeds)), side_by_side)

"""`negwise reproduce news|matching|items`: the protocol of a task from data, and its record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from negwise.experiments.evidence.protocol import Protocol
from negwise.experiments.evidence.record import Record, collect, write
from negwise.experiments.evidence.tasks import base_training, sized, task_named
from negwise.experiments.plan import spread
from negwise.experiments.setup import device_of, held
from negwise.train.folder import RESULT

NOWHERE = "docs"
"""The text pairs that need no file."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What `reproduce` is asked. None means what the task says; ``fields`` of `Training` replace those of the task."""

    task: str
    data: str
    k: tuple[int, ...] | None = None
    seeds: int | None = None
    steps: int | None = None
    vectors: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    device: str = "auto"


def reproduce(
    asked: Asked, out: str | Path, *, jobs: int | None = None, tell: Callable[[str], None] = print
) -> list[Path]:
    """Do, or go on with, the protocol in the folder ``out``; writes the record of what is done there."""
    folder = Path(out)
    protocol = protocol_of(asked, folder, jobs)
    with held(folder):
        try:
            protocol.run(tell)
        finally:
            files = record_of(protocol)
    return files


def record_of(protocol: Protocol) -> list[Path]:
    """Write the record of whatever is done; nothing before the pilot has ended."""
    if not (protocol.folder("1", protocol.seeds[0]) / RESULT).exists():
        return []
    record, ranks = collect(protocol, device_of(protocol.base.device))
    return write(named(record, protocol.base.data), ranks, protocol.out)


def named(record: Record, data: str) -> Record:
    """The embedded texts are a task of their own beside the file that the task usually has."""
    return record | {"task": NOWHERE} if data == NOWHERE else record


def protocol_of(asked: Asked, out: Path, jobs: int | None = None) -> Protocol:
    task = sized(task_named(asked.task), asked.k, asked.seeds, asked.steps)
    device = device_of(asked.device)
    more: dict[str, Any] = {"precision": "32-true"} if device == "cpu" else {}
    if asked.data == NOWHERE:
        more |= {"skip_bad": 0}
    base = base_training(task, asked.data, vectors=asked.vectors, device=device, more={**more, **asked.fields})
    side_by_side, _ = spread(jobs, device, len(task.ks) * task.seeds)
    return Protocol(out, task, base, task.ks, tuple(range(task.seeds)), side_by_side)

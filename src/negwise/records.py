"""The run log: training appends, everybody else reads. ``run.jsonl``, one JSON object a line.

==========  ==============================================================================================
kind        fields
==========  ==============================================================================================
``step``    ``step``, ``time``, ``k``, ``k_used``, ``loss``, ``win_rate``, ``log_k1``, ``mi_bound``
``eval``    ``step``, ``split``, ``auc``, ``auc_se``, ``queries``, ``pairs``, ``metrics``
``event``   ``event`` ("start", "resume", "stop", "end"), ``step``
==========  ==============================================================================================

``step`` is everywhere the number of updates done. A run that resumes at step s does again what came after s, so
readers drop what was logged of that before. What is undefined, such as a win rate without pairs, is null.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from negwise.errors import InputError

NAME = "run.jsonl"

Record = dict[str, Any]


class RunLog:
    """Appends records to ``path``; each is on its way to the disk, whole, before the next line of the caller runs.

    Opening a log that was cut off in the middle of a line removes that half line, and nothing else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._file.truncate(_whole_lines(self.path))

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record. Where the disk refuses, the log is left as it was."""
        try:
            line = json.dumps(record, allow_nan=False) + "\n"
        except ValueError as error:
            raise InputError(f"a record of {self.path} holds a number that JSON has none for: {record!r}") from error
        left, start = memoryview(line.encode()), self._file.seek(0, os.SEEK_END)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(start)
            raise OSError(error.errno, f"{error.strerror}; the log stays as it was", str(self.path)) from error

    def sync(self) -> None:
        """Wait until everything is on the disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Run:
    """What stands of a log: steps and evaluations without those that a resume took back, and all events."""

    steps: tuple[Record, ...]
    evals: tuple[Record, ...]
    events: tuple[Record, ...]

    def of_split(self, split: str) -> tuple[Record, ...]:
        """The evaluations of ``split``, in the order of their steps."""
        return tuple(record for record in self.evals if record["split"] == split)


def read_run(path: str | os.PathLike[str]) -> Run:
    """Read a ``run.jsonl``, or the one in the folder ``path``. A half-written last line is left out."""
    file = Path(path) / NAME if Path(path).is_dir() else Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file. Pass the folder of a run, which has a {NAME}")
    lines = file.read_bytes()[: _whole_lines(file)].split(b"\n")[:-1]
    kept: dict[str, list[Record]] = {"step": [], "eval": [], "event": []}
    for number, line in enumerate(lines, start=1):
        record = _record(line, f"{file}, line {number}")
        if record["kind"] == "event" and record["event"] == "resume":
            for kind in ("step", "eval"):
                kept[kind] = [earlier for earlier in kept[kind] if earlier["step"] <= record["step"]]
        kept[record["kind"]].append(record)
    return Run(*(tuple(kept[kind]) for kind in ("step", "eval", "event")))


def _whole_lines(path: Path) -> int:
    """How many bytes of ``path`` are whole lines; it is read from the end."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 65536)
            file.seek(start)
            cut = file.read(end - start).rfind(b"\n")
            if cut >= 0:
                return start + cut + 1
            end = start
    return 0


def _record(line: bytes, where: str) -> Record:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}). Delete the line") from error
    needs = {"step": ("step",), "eval": ("step", "split"), "event": ("step", "event")}
    kind = record.get("kind") if isinstance(record, dict) else None
    if kind not in needs or any(name not in record for name in needs[kind]):
        raise InputError(f"{where}: {line[:80]!r} is no record; expected kind step, eval or event, with its fields")
    return record

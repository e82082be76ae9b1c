"""``race.jsonl``: the decisions of a race, a line each, written before they are acted on and read on resuming.

==============  ==========================
kind            type
==============  ==========================
``start``       `RaceStart`
``rung``        `Decision`
``horizon``     `Horizon`
``comparison``  `Comparison`
``end``         `TrainingEnd`
==============  ==========================
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.records.decoding import decode, encode
from negwise.records.job_records import Decision, TrainingEnd

RACE = "race.jsonl"


@dataclass(frozen=True)
class Candidate:
    """A rule for K and a learning rate, and the ``steps`` that the time has room for at its own pace.

    ``max_k`` bounds K; None leaves it to the plan.
    """

    rule: str
    learning_rate: float
    steps: int
    eval_every: int
    max_k: int | None = None

    @property
    def name(self) -> str:
        bound = "" if self.max_k is None else f", at most {self.max_k}"
        return f"{self.rule}{bound}, learning rate {self.learning_rate:g}"

    @property
    def folder(self) -> str:
        bound = "" if self.max_k is None else f"-{self.max_k}"
        return f"{self.rule.replace(':', '-')}{bound}-lr-{self.learning_rate:g}"


@dataclass(frozen=True)
class RaceStart:
    """Who takes part, and why so; the first is what is trained where nothing speaks for another.

    One of ``joins``, a higher and a lower learning rate, takes part from the first comparison on.
    """

    candidates: tuple[Candidate, ...]
    reason: str
    joins: tuple[Candidate, ...] = ()


@dataclass(frozen=True)
class Horizon:
    """Steps of the candidate that goes on to the end, from the time that was left, in force after step ``at``."""

    candidate: str
    steps: int
    seconds_left: float | None
    step_seconds: float
    reason: str
    at: int


@dataclass(frozen=True)
class Comparison:
    """Another K that trains for the time of the model: its ``steps``, and the seconds of a step of each."""

    rule: str
    steps: int
    step_seconds: float
    model_step_seconds: float


RaceRecord = RaceStart | Decision | Horizon | Comparison | TrainingEnd
KINDS: dict[str, type[Any]] = {
    "start": RaceStart,
    "rung": Decision,
    "horizon": Horizon,
    "comparison": Comparison,
    "end": TrainingEnd,
}


def read_race(path: Path) -> list[RaceRecord]:
    """What was decided so far, in order; nothing where there is no file. A half-written last line is left out."""
    if not path.exists():
        return []
    found: list[RaceRecord] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            values = json.loads(line)
            kind = KINDS[values.pop("kind")]
        except (ValueError, KeyError, AttributeError) as error:
            raise InputError(f"{path}, line {number}: no record of a race ({error}). Restore the file.") from error
        found.append(decode(kind, values, f"{path}, line {number}"))
    return found


def append_race(path: Path, record: RaceRecord) -> None:
    """Add a decision; it is on the disk when this returns."""
    kind = next(name for name, one in KINDS.items() if type(record) is one)
    whole = path.read_bytes() if path.exists() else b""
    whole = whole[: whole.rfind(b"\n") + 1]  # a half-written line goes
    line = json.dumps({"kind": kind, **encode(record)}, allow_nan=False)
    write_atomically(path, whole + line.encode() + b"\n")

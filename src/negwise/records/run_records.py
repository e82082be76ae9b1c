"""The records of one run: ``config.json``, ``run.jsonl`` and ``result.json``.

``run.jsonl`` has one JSON object a line. ``kind`` says which:

==========  ==============================
kind        type
==========  ==============================
``step``    `StepRecord`
``eval``    `EvalRecord`
``event``   `EventRecord`
==========  ==============================

``step`` is everywhere the number of updates done. A run that resumes at step s repeats what came after s, so readers
drop what was logged of that before. An undefined value, such as a win rate without pairs, is null.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from negwise.errors import InputError
from negwise.records.decoding import FORMAT, decode, encode, read_record

CONFIG, LOG, RESULT = "config.json", "run.jsonl", "result.json"


@dataclass(frozen=True)
class Scores:
    """An evaluation: AUC with its standard error over queries, and the other metrics by name."""

    auc: float | None
    auc_se: float | None = None
    queries: int | None = None
    pairs: int | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    no_positive: int = 0
    no_negative: int = 0

    def value(self, metric: str) -> float | None:
        """The metric ``metric``, such as "auc" or "ndcg@10"; None where it was not evaluated or is undefined."""
        return self.auc if metric == "auc" else self.metrics.get(metric)

    def error(self, metric: str) -> float | None:
        """The standard error of ``metric`` over queries; None where it is not known."""
        return self.auc_se if metric == "auc" else self.metrics.get(f"{metric}_se")


@dataclass(frozen=True)
class StepRecord:
    """The mean over the steps since the last record. ``k`` is the K that the rule asked for, ``k_used`` the K it got.

    ``hit_rate`` is the share of rows whose positive is above all of its drawn negatives, P(K) of the model (eq. 4).
    ``log_k1`` is the mean of log(K + 1) over rows, ``mi_bound`` is ``log_k1 - loss`` (eq. 2). ``given_win_rate`` is the
    win rate over negatives that came with the data, ``drawn_win_rate`` over those that were drawn; ``k_asked`` is
    the K that the rule asked for at the last of them, before its bounds, and ``k_reason`` what set or bounded K.
    """

    step: int
    time: float | None = None
    k: float | None = None
    k_used: float | None = None
    loss: float | None = None
    win_rate: float | None = None
    log_k1: float | None = None
    mi_bound: float | None = None
    hit_rate: float | None = None
    given_win_rate: float | None = None
    drawn_win_rate: float | None = None
    k_asked: float | None = None
    k_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class EvalRecord(Scores):
    """`Scores` of ``split`` after ``step`` updates."""

    step: float
    split: str


@dataclass(frozen=True)
class EventRecord:
    """``event``: "start", "resume", "stop", "pause", "threads" or "end"; ``detail`` says more."""

    event: str
    step: int
    detail: str | None = None


KINDS: dict[str, type[StepRecord] | type[EvalRecord] | type[EventRecord]] = {
    "step": StepRecord,
    "eval": EvalRecord,
    "event": EventRecord,
}


@dataclass(frozen=True)
class RunLog:
    """What stands of a log: steps and evaluations without those that a resume repeated, and all events."""

    steps: tuple[StepRecord, ...] = ()
    evals: tuple[EvalRecord, ...] = ()
    events: tuple[EventRecord, ...] = ()

    def of_split(self, split: str) -> tuple[EvalRecord, ...]:
        """The evaluations of ``split``, in the order of their steps."""
        return tuple(record for record in self.evals if record.split == split)


@dataclass(frozen=True)
class BestStep:
    """The step whose weights were kept, by the validation value of ``metric``."""

    step: int
    auc: float | None
    metric: str = "auc"
    value: float | None = None


@dataclass(frozen=True)
class Recommended:
    """What the top ``n`` of a model hold.

    ``coverage`` is the share of the catalogue that is recommended to anybody. ``popularity`` is the mean number of
    training positives of a recommended item, ``positives_popularity`` that of the right ones.
    """

    n: int
    queries: int
    catalogue: int
    coverage: float
    popularity: float | None
    positives_popularity: float | None


@dataclass(frozen=True)
class RunResult:
    """``result.json``: what a run came to. ``weights`` is the folder of the best checkpoint inside the run's.

    ``finished`` is false for a run that was paused, which has no ``result.json`` yet.
    """

    steps: int
    best: BestStep | None
    evaluations: dict[str, Scores]
    weights: str
    parameters: int
    seconds: float
    device: str
    precision: str
    graphs: bool
    threads: int
    processes: int
    recommended: Recommended | None = None
    finished: bool = True
    format: int = FORMAT


@dataclass(frozen=True)
class RunConfig:
    """``config.json``: what a run may not change. ``run`` is the request as it was typed."""

    run: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)
    split: str = ""
    data_digest: str = ""
    format: int = FORMAT


class RunLogWriter:
    """Appends records to the log ``path``; each line is handed to the system whole before `append` returns.

    Opening a log that was cut off in the middle of a line removes that half line, and nothing else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._file.truncate(_whole_lines(self.path))

    def append(self, record: StepRecord | EvalRecord | EventRecord) -> None:
        """Write one record. Where the disk refuses, the log is left as it was."""
        kind = next(name for name, one in KINDS.items() if type(record) is one)
        # What most runs never have, such as a reason for K, is not written at every step.
        values = {name: value for name, value in encode(record).items() if value is not None or name in _ALWAYS}
        values = {"step": values.pop("step"), **values}
        try:
            line = json.dumps({"kind": kind, **values}, allow_nan=False) + "\n"
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


_ALWAYS = frozenset(
    ("step", "time", "k", "k_used", "loss", "win_rate", "log_k1", "mi_bound", "split", "auc", "auc_se", "queries")
)


def read_run(path: str | os.PathLike[str]) -> RunLog:
    """Read a ``run.jsonl``, or the one in the folder ``path``. A half-written last line is left out."""
    file = Path(path) / LOG if Path(path).is_dir() else Path(path)
    if not file.exists():
        raise InputError(f"{file}: no such file. Pass the folder of a run, which has a {LOG}")
    lines = file.read_bytes()[: _whole_lines(file)].split(b"\n")[:-1]
    kept: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    for number, line in enumerate(lines, start=1):
        where = f"{file}, line {number}"
        values = _object(line, where)
        if values["kind"] not in KINDS:  # of a newer version
            continue
        record = decode(KINDS[values["kind"]], values, where)
        if isinstance(record, EventRecord) and record.event == "resume":
            for kind in ("step", "eval"):
                kept[kind] = [earlier for earlier in kept[kind] if earlier.step <= record.step]
        if isinstance(record, StepRecord) and kept["step"] and record.step <= kept["step"][-1].step:
            raise InputError(
                f"{where}: step {record.step} comes after step {kept['step'][-1].step} with no resume between them. "
                "Keep one run per file."
            )
        kept[values["kind"]].append(record)
    return RunLog(*(tuple(kept[kind]) for kind in KINDS))


def read_result(folder: Path) -> RunResult | None:
    """The result of the run in ``folder``; None while it has not ended."""
    path = folder / RESULT
    return read_record(RunResult, path) if path.is_file() else None


def _object(line: bytes, where: str) -> Mapping[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error}). Delete the line") from error
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise InputError(f"{where}: {line[:80]!r} is no record; expected an object with a kind, as step or eval")
    return values


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

"""`python -m evidence seconds`: how long a step takes at each K of a task, each alone on the machine.

Runs side by side share a machine, so their seconds compare nothing. Here every K of the task's sweep takes some steps
one after the other, three times over; evaluations are left out, and so are the steps that warm up.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Self

from evidence.record import PACE, Record, read_only, with_pace, write_record
from negwise import InputError
from negwise.files import lock_folder, read_json, write_json
from negwise.jobs import fit_task, machine
from negwise.records import CONFIG, EvalRecord, RunConfig, StepRecord, decode, read_record, read_result
from negwise.requests import TrainRequest
from negwise.tasks import Task, make_task, resolve_device

REPEATS = 3
WARM_UP = 10
"""Steps at the start of each turn that are not counted."""
STEPS = 60


def reproduce_seconds(
    out: str | Path, *, steps: int = STEPS, device: str = "auto", tell: Callable[[str], None] = print
) -> list[Path]:
    """Time the task in the folder ``out``: writes ``pace.json`` there, and the record again with it."""
    folder = Path(out)
    if steps < WARM_UP + 2:
        raise InputError(f"steps: got {steps}, expected {WARM_UP + 2} or more: the first {WARM_UP} warm up.")
    where = resolve_device(device)
    record = read_only(folder)
    with lock_folder(folder, "job"):
        request, task = _opened(folder, where)
        ks = [arm["rule"] for arm in record["arms"] if arm["role"] == "fixed"]
        found = _begun(folder, {"steps": steps, "warm_up": WARM_UP, "machine": machine(request.device)})
        for turn, k in itertools.product(range(REPEATS), ks):
            times = found["repeats"].setdefault(k, [])
            if len(times) <= turn:
                times.append(step_ms(replace(request, k=k), task, steps))
                tell(f"{record['task']}: K = {k}, {times[-1]:.2f} ms a step ({turn + 1} of {REPEATS})")
                found["ms"] = {each: median(values) for each, values in found["repeats"].items()}
                write_json(folder / PACE, found)
        return [folder / PACE, write_record(with_pace(record, folder), folder)]


def step_ms(request: TrainRequest, task: Task, steps: int) -> float:
    """The median milliseconds of an optimiser step, after the warm-up."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        short = replace(request, steps=steps, eval_every=steps)
        fit_task(short, replace(task, splits={}), folder, show=clock)
    counted = [(step, when) for step, when in clock.times if step >= WARM_UP]
    return 1000 * median((after - before) / (to - at) for (at, before), (to, after) in itertools.pairwise(counted))


class Clock:
    """A display that notes how many steps are on record and when, by when the device has finished them.

    A long run records several steps as one.
    """

    def __init__(self) -> None:
        self.times: list[tuple[int, float]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def step(self, record: StepRecord) -> None:
        self.times.append((record.step, time.perf_counter()))

    def evaluation(self, record: EvalRecord) -> None: ...

    def say(self, line: str) -> None: ...


def _opened(folder: Path, device: str) -> tuple[TrainRequest, Task]:
    """What the task's first run trained, on its data. All K share the model: its weights do not change its speed."""
    run = folder / "arms" / "1" / "seed-0"
    result = read_result(run)
    if result is None:
        raise InputError(f"{run}: no finished run there, so it is not known what to time. Pass a folder with its runs.")
    config = read_record(RunConfig, run / CONFIG)
    request = replace(decode(TrainRequest, config.run, str(run / CONFIG)), device=device, threads=result.threads)
    task = make_task(request)
    if task.data.digest != config.data_digest:
        raise InputError(f"{run}: the data changed since this run. Restore {request.data}.")
    return request, task


def _begun(folder: Path, here: Record) -> Record:
    """What was timed already, under the same conditions."""
    if not (folder / PACE).exists():
        return {**here, "ms": {}, "repeats": {}}
    found: Record = read_json(folder / PACE)
    for name, value in here.items():
        if found[name] != value:
            raise InputError(
                f"{folder / PACE}: timed with {name} {found[name]!r}, and it is {value!r} now. Times of both "
                "would mix: remove that file to time again."
            )
    return found

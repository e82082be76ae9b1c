"""Several runs side by side: cells, the processes that work on them, and what became of each.

A cell whose folder has a result is done. A worker that dies is replaced, and its cell taken up once more from its last
checkpoint; a cell that fails is failed, and the others go on.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from negwise.errors import InputError, NegwiseError
from negwise.files import write_atomically
from negwise.training.run_folder import RESULT, read_json
from negwise.training.stopping import Stopped

FAILED = "failed.json"
DEATHS = 2
"""A cell whose worker died this often has failed."""
PATIENCE = 120.0
"""Seconds for a worker to finish its step and save, once it was told to stop."""


@dataclass(frozen=True)
class Cell:
    """One run: what it is called, its folder, and its `Training` in plain values."""

    name: str
    folder: Path
    training: dict[str, Any]
    pilot: dict[str, Any] | None = None

    @property
    def steps(self) -> int:
        return int(self.training["steps"])

    def request(self) -> dict[str, Any]:
        return {"do": "train", "folder": str(self.folder), "training": self.training, "pilot": self.pilot}


class Watch(Protocol):
    """Told of what the workers do."""

    def began(self, cell: Cell) -> None: ...

    def news(self, cell: Cell, record: dict[str, Any]) -> None: ...

    def ended(self, cell: Cell, error: str | None) -> None: ...

    def say(self, line: str) -> None: ...


class Worker:
    """A process of ``negwise.jobs.worker`` and the cell that it works on."""

    def __init__(self, threads: int) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "negwise.jobs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C reaches whoever started it, who tells it once
        )
        self.cell: Cell | None = None
        self._rest = b""

    @property
    def stream(self) -> Any:
        return self.process.stdout

    def ask(self, request: dict[str, Any]) -> None:
        """Send a request. A process that is dead by now shows it by the end of its answers."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(request).encode() + b"\n")

    def answers(self) -> list[dict[str, Any]] | None:
        """What came since the last call; None once the process has ended."""
        chunk = os.read(self.stream.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def wait(self) -> Iterator[dict[str, Any]]:
        """Every answer, as it comes, until the process ends."""
        while (found := self.answers()) is not None:
            yield from found

    def last_words(self) -> str:
        """How it died, and the end of what it said."""
        code = self.process.wait()
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 2000))
        lines = self.errors.read().decode(errors="replace").strip().splitlines()
        return f"its process ended {how}" + (f": {lines[-1]}" if lines else "")

    def close(self) -> None:
        """End it: at once where it is idle, after its step and its checkpoint where it is not."""
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()


def work(cells: Iterable[Cell], *, jobs: int, threads: int, watch: Watch) -> None:
    """Run every cell that has no result yet, ``jobs`` at a time. What became of a cell is in its folder."""
    waiting = deque(cell for cell in cells if not (cell.folder / RESULT).exists())
    deaths: dict[Path, int] = {}
    workers: list[Worker] = []
    with _interruptible(), selectors.DefaultSelector() as selector:
        try:
            while waiting or any(worker.cell for worker in workers):
                while waiting and sum(worker.cell is not None for worker in workers) < jobs:
                    worker = next((worker for worker in workers if worker.cell is None), None)
                    if worker is None:
                        worker = Worker(threads)
                        workers.append(worker)
                        selector.register(worker.stream, selectors.EVENT_READ, worker)
                    _give(worker, waiting.popleft(), watch)
                for key, _ in selector.select():
                    worker = key.data
                    if (found := worker.answers()) is not None:
                        for answer in found:
                            _hear(worker, answer, watch)
                        continue  # one that was stopped by somebody else is about to end, with its cell
                    selector.unregister(worker.stream)
                    workers.remove(worker)
                    if worker.cell is not None:
                        _bury(worker, deaths, waiting, watch)
                    worker.close()
        except KeyboardInterrupt:
            watch.say("stopping: each run finishes its step and saves. Ctrl-C again stops at once ...")
            _stop(workers)
            raise Stopped("stopped; what was done is saved. Type the same command again to go on") from None
        finally:
            for worker in workers:
                worker.close()


def ask_once(request: dict[str, Any], threads: int) -> dict[str, Any]:
    """One request to a worker of its own, and its answer."""
    worker = Worker(threads)
    try:
        worker.ask(request)
        for answer in worker.wait():
            if "done" in answer:
                return answer["done"]
            if "failed" in answer:
                raise (InputError if answer["wrong"] else NegwiseError)(answer["failed"])
        raise NegwiseError(worker.last_words())
    finally:
        worker.close()


def error_of(folder: Path) -> str | None:
    """Why the cell of this folder failed, where it did."""
    path = folder / FAILED
    if folder.exists() and not folder.is_dir():
        return f"{folder} is a file, where the folder of a run should be. Move it away"
    return read_json(path)["error"] if path.exists() else None


def failed_for_good(folder: Path) -> bool:
    """Whether the cell of this folder failed by what was asked of it, so that trying again changes nothing."""
    path = folder / FAILED
    return path.exists() and bool(read_json(path).get("wrong"))


def _stop(workers: list[Worker]) -> None:
    """Let every worker finish its step and save; where Ctrl-C comes once more, do not wait."""
    for worker in workers:
        worker.process.terminate()
    try:
        for worker in workers:
            worker.process.wait(PATIENCE)
    except (KeyboardInterrupt, subprocess.TimeoutExpired):
        for worker in workers:
            worker.process.kill()


def _give(worker: Worker, cell: Cell, watch: Watch) -> None:
    with suppress(OSError):  # what is wrong with the folder, the worker will say
        (cell.folder / FAILED).unlink(missing_ok=True)
    worker.cell = cell
    watch.began(cell)
    worker.ask(cell.request())


def _hear(worker: Worker, answer: dict[str, Any], watch: Watch) -> None:
    cell = worker.cell
    assert cell is not None
    if "step" in answer:
        watch.news(cell, answer)
        return
    if "stopped" in answer:
        return
    worker.cell = None
    if "failed" in answer:
        _fail(cell, answer["failed"], watch, answer.get("trace"), wrong=answer["wrong"])
    else:
        watch.ended(cell, None)


def _bury(worker: Worker, deaths: dict[Path, int], waiting: deque[Cell], watch: Watch) -> None:
    cell = worker.cell
    assert cell is not None
    deaths[cell.folder] = deaths.get(cell.folder, 0) + 1
    words = worker.last_words()
    if deaths[cell.folder] < DEATHS:
        watch.say(f"{cell.name}: {words}. It is taken up again from its last checkpoint")
        waiting.appendleft(cell)
    else:
        _fail(cell, f"{words}, {DEATHS} times", watch)


def _fail(cell: Cell, error: str, watch: Watch, trace: str | None = None, *, wrong: bool = False) -> None:
    body = {"error": error, "wrong": wrong, "trace": trace}
    with suppress(OSError):  # a full disk is why it failed; it is said, if it cannot be written
        write_atomically(cell.folder / FAILED, json.dumps(body, indent=1) + "\n")
    watch.ended(cell, error)


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM means what Ctrl-C means."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

"""Runs side by side: planned runs, the worker processes that train them, and what became of each.

A run whose folder has a result is done. A worker that dies is replaced, and its run resumes once from its last
checkpoint; a run that fails is failed, and the others continue.
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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from negwise.errors import InputError, NegwiseError
from negwise.records import FAILED, RESULT, Failure, read_record, write_record
from negwise.requests import TrainRequest
from negwise.training import Stopped

MAX_DEATHS = 2
"""A run whose worker died this often has failed."""
PATIENCE = 120.0
"""Seconds for a worker to finish its step and save, once it was told to stop."""


@dataclass(frozen=True)
class PlannedRun:
    """One run: its name for people, its folder, its request, and the content key of its data.

    ``pilot`` has the rules by which a pilot may end early; None for any other run.
    """

    name: str
    folder: Path
    request: TrainRequest
    source: str | None = None
    pilot: dict[str, Any] | None = None

    @property
    def steps(self) -> int:
        assert self.request.steps is not None
        return self.request.steps

    def message(self) -> dict[str, Any]:
        request = asdict(replace(self.request, out=str(self.folder)))
        return {"do": "train", "request": request, "source": self.source, "pilot": self.pilot}


class PoolProgress(Protocol):
    """Receives what the workers do."""

    def began(self, run: PlannedRun) -> None: ...

    def step(self, run: PlannedRun, message: dict[str, Any]) -> None: ...

    def ended(self, run: PlannedRun, error: str | None) -> None: ...

    def say(self, line: str) -> None: ...


class Worker:
    """A process of ``negwise.jobs.worker`` and the run that it trains."""

    def __init__(self, threads: int) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "negwise.jobs.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            bufsize=0,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            start_new_session=True,  # Ctrl-C reaches the parent, which tells its workers once
        )
        self.run: PlannedRun | None = None
        self._rest = b""

    @property
    def stream(self) -> Any:
        return self.process.stdout

    def send(self, message: dict[str, Any]) -> None:
        """Send a request. A process that is dead by now shows it by the end of its replies."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def replies(self) -> list[dict[str, Any]] | None:
        """What came since the last call; None once the process has ended."""
        chunk = os.read(self.stream.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        return [json.loads(line) for line in lines]

    def every_reply(self) -> Iterator[dict[str, Any]]:
        """Every reply, as it comes, until the process ends."""
        while (found := self.replies()) is not None:
            yield from found

    def exit_message(self) -> str:
        """How it died, and the last line of its standard error."""
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


def train_all(runs: Iterable[PlannedRun], *, jobs: int, threads: int, progress: PoolProgress) -> None:
    """Train every run that has no result yet, ``jobs`` at a time. What became of a run is in its folder."""
    waiting = deque(run for run in runs if not (run.folder / RESULT).exists())
    deaths: dict[Path, int] = {}
    workers: list[Worker] = []
    with _interruptible(), selectors.DefaultSelector() as selector:
        try:
            while waiting or any(worker.run for worker in workers):
                while waiting and sum(worker.run is not None for worker in workers) < jobs:
                    worker = next((worker for worker in workers if worker.run is None), None)
                    if worker is None:
                        worker = Worker(threads)
                        workers.append(worker)
                        selector.register(worker.stream, selectors.EVENT_READ, worker)
                    _assign(worker, waiting.popleft(), progress)
                for key, _ in selector.select():
                    worker = key.data
                    if (found := worker.replies()) is not None:
                        for reply in found:
                            _handle(worker, reply, progress)
                        continue  # one that somebody else stopped is about to end, with its run
                    selector.unregister(worker.stream)
                    workers.remove(worker)
                    if worker.run is not None:
                        _retry_or_fail(worker, deaths, waiting, progress)
                    worker.close()
        except KeyboardInterrupt:
            progress.say("Stopping: each run finishes its step and saves. Ctrl-C again stops at once ...")
            _stop(workers)
            raise Stopped("stopped; what was done is saved. Type the same command again to resume") from None
        finally:
            for worker in workers:
                worker.close()


def ask_worker(message: dict[str, Any], threads: int) -> dict[str, Any]:
    """One request to a worker of its own, and its reply."""
    worker = Worker(threads)
    try:
        worker.send(message)
        for reply in worker.every_reply():
            if "done" in reply:
                return reply["done"]
            if "failed" in reply:
                raise (InputError if reply["wrong_request"] else NegwiseError)(reply["failed"])
        raise NegwiseError(worker.exit_message())
    finally:
        worker.close()


def failure_of(folder: Path) -> Failure | None:
    """Why the run of this folder failed, where it did."""
    if folder.exists() and not folder.is_dir():
        return Failure(f"{folder} is a file, where the folder of a run should be. Move it away")
    path = folder / FAILED
    return read_record(Failure, path) if path.exists() else None


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


def _assign(worker: Worker, run: PlannedRun, progress: PoolProgress) -> None:
    with suppress(OSError):  # what is wrong with the folder, the worker will say
        (run.folder / FAILED).unlink(missing_ok=True)
    worker.run = run
    progress.began(run)
    worker.send(run.message())


def _handle(worker: Worker, reply: dict[str, Any], progress: PoolProgress) -> None:
    run = worker.run
    assert run is not None
    if "step" in reply:
        progress.step(run, reply)
        return
    if "stopped" in reply:
        return
    worker.run = None
    if "failed" in reply:
        _fail(run, Failure(reply["failed"], reply["wrong_request"], reply.get("trace")), progress)
    else:
        progress.ended(run, None)


def _retry_or_fail(worker: Worker, deaths: dict[Path, int], waiting: deque[PlannedRun], progress: PoolProgress) -> None:
    run = worker.run
    assert run is not None
    deaths[run.folder] = deaths.get(run.folder, 0) + 1
    message = worker.exit_message()
    if deaths[run.folder] < MAX_DEATHS:
        progress.say(f"{run.name}: {message}. It resumes from its last checkpoint")
        waiting.appendleft(run)
    else:
        _fail(run, Failure(f"{message}, {MAX_DEATHS} times"), progress)


def _fail(run: PlannedRun, failure: Failure, progress: PoolProgress) -> None:
    with suppress(OSError):  # a full disk is why it failed; it is said, if it cannot be written
        write_record(run.folder / FAILED, failure)
    progress.ended(run, failure.error)


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

"""Runs that kill themselves, each in a process of its own; forks of this one, which has everything imported.

``python train_child.py`` reads requests, one JSON object a line: {"out", "point", "number", "case", "threads"}, and
answers {"code", "said"}. ``point`` names where the run kills itself, at the ``number``-th time: "batch" (when a step
asks for its examples), "log" (in the middle of a line), "file" (in the middle of a file of a checkpoint), "rename" (a
checkpoint is written and not yet in place), "prune" (in place, old ones not yet gone), "result" (all done but the
result), "interrupt" (Ctrl-C in a step), "judge" (Ctrl-C in an evaluation); "never". With "room" no file may grow beyond
``number`` bytes: the disk is full.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path

import torch
from train_world import Dot, Mean, Watching, make_sampler, make_world, run

from negwise.records import RunLogWriter
from negwise.samplers import Hardest, Mixture, Queue
from negwise.schedule import OnlineK
from negwise.tasks.sampler_choice import ModelScore
from negwise.training import Stopped, batches, checkpoint, evaluation, loop

CASES = {
    "open": {"model": lambda: Dot(dropout=0.3)},
    "closed": {"model": lambda: Mean(dropout=0.3), "rule": Watching(), "save_every": 2, "log_every": 3},
    "online": {"model": lambda: Mean(dropout=0.3), "rule": OnlineK(0.3, "hit@5", 40), "save_every": 2, "lag": 3},
    "queue": {"model": lambda: Dot(dropout=0.3), "sampler": lambda _: mixed_queue(), "save_every": 2},
    "hardest": {"model": lambda: Mean(dropout=0.3), "sampler": lambda model: hardest(model), "save_every": 3},
}


def mixed_queue() -> Mixture:
    return Mixture([make_sampler(make_world()), Queue(30)], [1, 2])


def hardest(model) -> Hardest:
    return Hardest(make_sampler(make_world()), 20, ModelScore(model))


def at(number: int, act) -> object:
    """A function that acts when it is called for the ``number``-th time."""
    calls = 0

    def called(*_):
        nonlocal calls
        calls += 1
        if calls == number:
            act()

    return called


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def before(owner, name: str, hook) -> None:
    plain = getattr(owner, name)

    def hooked(*args, **named):
        hook(*args)
        return plain(*args, **named)

    setattr(owner, name, hooked)


def half_file(number: int) -> None:
    calls, plain = [], checkpoint.write_file

    def write_file(path: Path, content: bytes) -> None:
        calls.append(path)
        if len(calls) == number:
            path.write_bytes(content[: len(content) // 2])
            kill()
        plain(path, content)

    checkpoint.write_file = write_file


def half_line(number: int) -> None:
    calls, plain = [], RunLogWriter.append

    def append(self, record) -> None:
        calls.append(record)
        if len(calls) == number:
            os.write(self._file.fileno(), b'{"kind": "st')
            kill()
        plain(self, record)

    RunLogWriter.append = append


def arrange(point: str, number: int) -> None:
    if point == "file":
        half_file(number)
    elif point == "log":
        half_line(number)
    elif point == "batch":
        before(batches, "load_batch", at(number, kill))
    elif point == "rename":
        before(Path, "replace", at(number, kill))
    elif point == "prune":
        before(checkpoint, "_prune", at(number, kill))
    elif point == "result":
        before(loop, "write_result", at(number, kill))
    elif point == "interrupt":
        before(batches, "load_batch", at(number, interrupt))
    elif point == "judge":
        before(evaluation, "rank_positives", at(number, interrupt))
    elif point == "room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (number, resource.RLIM_INFINITY))


def work(request) -> int:
    case = dict(CASES[request["case"]])
    arrange(request["point"], request["number"])
    torch.set_num_threads(request["threads"])
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # whatever the state of the generator
    try:
        model = case.pop("model")()
        if "sampler" in case:
            case["sampler"] = case["sampler"](model)
        run(request["out"], model, make_world(), data_digest="d1", **case)
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 130
    except BaseException:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)  # there is room to say so
        traceback.print_exc()
        return 1
    return 0


def answer(request) -> dict[str, object]:
    with tempfile.TemporaryFile("w+") as said:
        pid = os.fork()
        if pid == 0:
            os.dup2(said.fileno(), 2)
            os._exit(work(request))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        return {"code": code, "said": said.read()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out:
        run(out, steps=1)  # what is slow only once
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)

"""A process that trains what it is told: one JSON object a line in, one a line out, nothing pickled.

``python -m negwise.jobs.worker``. When its parent dies, its standard input ends, and it exits at once: two processes
never write in one folder. A request names its data by a content key, so that the worker reads no file of the user's.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

from negwise.errors import InputError, NegwiseError

if TYPE_CHECKING:
    from negwise.records import EvalRecord, StepRecord

ORPHANED = 3
SECONDS_BETWEEN_MESSAGES = 0.2

Message = dict[str, Any]
Reply = Callable[[Message], None]


class ProgressReporter:
    """A display that sends what it receives to the parent, a few times a second."""

    def __init__(self, reply: Reply) -> None:
        self.reply, self.last, self.auc = reply, 0.0, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def step(self, record: StepRecord) -> None:
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_MESSAGES:
            self.last = now
            self.reply({"step": record.step, "k": record.k, "loss": record.loss, "auc": self.auc})

    def evaluation(self, record: EvalRecord) -> None:
        if record.split == "val":
            self.auc = record.auc  # type: ignore[assignment]

    def say(self, line: str) -> None:
        print(line, file=sys.stderr)


def serve() -> None:
    """Serve requests until standard input ends."""
    # Whatever prints to standard output must not disturb the replies.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def reply(message: Message) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    requests: queue.Queue[Message] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(ORPHANED)  # even where a request waits: whoever sent it is gone

    threading.Thread(target=listen, daemon=True).start()
    while _serve(requests.get(), reply):
        pass


def _serve(request: Message, reply: Reply) -> bool:
    """Do as asked, and reply; false when the process was told to stop."""
    from negwise.training import Stopped

    try:
        reply({"done": {"train": _train, "time": _time}[request["do"]](request, reply)})
    except Stopped:
        reply({"stopped": True})
        return False
    except (NegwiseError, OSError) as error:
        reply({"failed": str(error), "wrong_request": isinstance(error, InputError)})
    except Exception as error:
        reply({"failed": f"{type(error).__name__}: {error}", "wrong_request": False, "trace": traceback.format_exc()})
    return True


def _train(message: Message, reply: Reply) -> Message:
    from negwise.jobs.pilot import check_convergence
    from negwise.jobs.single_run import train_run

    request, source = _request(message)
    rules = message.get("pilot")
    should_stop = None if rules is None else lambda log: check_convergence(log, **rules).converged
    # Whoever planned the run has checked how large a K may be.
    return train_run(
        request, source=source, should_stop=should_stop, show=ProgressReporter(reply), any_k=True
    ).to_dict()


def _time(message: Message, reply: Reply) -> Message:  # noqa: ARG001
    from negwise.jobs.step_timing import time_steps

    request, source = _request(message)
    return asdict(time_steps(request, source, int(message["steps"])))


def _request(message: Message) -> tuple[Any, Any]:
    """The request of a message, and its data, opened by its content key."""
    from negwise.datasets import open_source
    from negwise.records import decode
    from negwise.requests import TrainRequest

    key = message.get("source")
    request = decode(TrainRequest, message["request"], "a request to a worker")
    return request, None if key is None else open_source(key)


if __name__ == "__main__":
    serve()

"""A process that trains what it is told: one JSON object a line in, one a line out, nothing pickled.

``python -m negwise.jobs.worker``. When whoever started it dies, its standard input ends, and it ends at once:
two processes never write in one folder.
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
from typing import Any, Self

from negwise.errors import InputError, NegwiseError

ORPHANED = 3
SECONDS_BETWEEN_NEWS = 0.2

Message = dict[str, Any]
Answer = Callable[[Message], None]


class Telling:
    """A display that sends what it is told, a few times a second."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.last, self.auc = answer, 0.0, None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None: ...

    def step(self, record: Message) -> None:
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_NEWS:
            self.last = now
            self.answer({"step": record["step"], "k": record["k"], "loss": record["loss"], "auc": self.auc})

    def evaluation(self, record: Message) -> None:
        if record["split"] == "val":
            self.auc = record["auc"]

    def say(self, line: str) -> None:
        print(line, file=sys.stderr)


def main() -> None:
    """Take requests until there are no more."""
    # Standard output belongs to the answers; whatever else prints there goes to standard error.
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    lock = threading.Lock()

    def answer(message: Message) -> None:
        with lock:
            out.write(json.dumps(message) + "\n")
            out.flush()

    requests: queue.Queue[Message] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(ORPHANED)  # even where a request waits: whoever sent it is no more

    threading.Thread(target=listen, daemon=True).start()
    while _do(requests.get(), answer):
        pass


def _do(request: Message, answer: Answer) -> bool:
    """Do as asked, and answer; false when the process was told to stop."""
    from negwise.training import Stopped

    try:
        answer({"done": {"train": _train, "time": _time}[request["do"]](request, answer)})
    except Stopped:
        answer({"stopped": True})
        return False
    except (NegwiseError, OSError) as error:
        answer({"failed": str(error), "wrong": isinstance(error, InputError)})
    except Exception as error:
        answer({"failed": f"{type(error).__name__}: {error}", "wrong": False, "trace": traceback.format_exc()})
    return True


def _train(request: Message, answer: Answer) -> Message:
    from negwise.jobs.pilot import judge
    from negwise.jobs.training import Training, train

    pilot = request.get("pilot")
    should_stop = None if pilot is None else lambda log: judge(log, **pilot).converged
    # Whoever made the cell has settled how large a K may be.
    return train(
        Training(**request["training"]), request["folder"], should_stop=should_stop, show=Telling(answer), any_k=True
    )


def _time(request: Message, answer: Answer) -> Message:  # noqa: ARG001
    from negwise.jobs.timing import measure
    from negwise.jobs.training import Training

    return asdict(measure(Training(**request["training"]), int(request["steps"])))


if __name__ == "__main__":
    main()

"""A process that has everything imported, and forks a job of its own for each request.

It reads JSON, one object a line: {"data", "out", "options"}. It answers with the id of the process that does the job,
and when that has ended with its exit code, which is -9 where it was killed.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import torch

import negwise as nw
from negwise.jobs import main_job, race_plan, step_timing
from negwise.training import loop


def main() -> None:
    torch.set_num_threads(1)
    race_plan.FEWEST_STEPS = 2
    # The clock of a job is the time that it computes, so that other work on the machine does not use up its budget.
    own = SimpleNamespace(monotonic=time.process_time, perf_counter=time.process_time)
    for module in (loop, step_timing, race_plan, main_job):
        module.time = own
    for line in sys.stdin:
        tasks = Path("/proc/self/task")
        assert not tasks.exists() or len(list(tasks.iterdir())) == 1, "a fork has only the thread that forks"
        child = os.fork()
        if child == 0:
            os._exit(do(json.loads(line)))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def do(request: dict) -> int:
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    try:
        nw.run(request["data"], out=request["out"], **request["options"])
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


main()

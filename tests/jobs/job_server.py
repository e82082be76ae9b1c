"""A process that has everything imported, and forks a job of its own for each request.

It reads JSON, one object a line: {"data", "out", "options"}. It answers with the id of the process that does the job,
and when that has ended with its exit code, which is -9 where it was killed.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path

import torch
from job_world import COMPUTED, LOOK_AT_THE_CLOCK

import negwise as nw
from negwise.jobs import race_plan


def main() -> None:
    torch.set_num_threads(1)
    race_plan.FEWEST_STEPS = 2
    for module in LOOK_AT_THE_CLOCK:
        module.time = COMPUTED
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

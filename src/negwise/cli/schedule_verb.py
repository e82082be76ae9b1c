"""`schedule`: K for each step, for a loop that is not written in Python, or for a look."""

from __future__ import annotations

import json
import sys

from negwise.errors import InputError
from negwise.requests import ScheduleRequest


def schedule_verb(request: ScheduleRequest, as_json: bool) -> None:
    """Print K for each step of training, as CSV or JSON.

    \b
    Examples:
      negwise schedule --peak 20 --steps 10000 > k.csv
      negwise schedule --peak 20 --steps 10000 --format json
      negwise schedule --peak 20 --steps 10000 --shape ans --turn 0.2
    """
    from negwise.schedule import k_by_step
    from negwise.schedule.typed_rules import SCHEDULES

    if as_json and request.format == "csv":
        raise InputError("--format csv and --json: got both, expected one of them.")
    try:
        rule = SCHEDULES[request.shape](request.peak, request.turn)
    except InputError as error:  # names the rule's argument, so add what was typed
        raise InputError(f"--peak {request.peak:g} --turn {request.turn:g}: {error}.") from None
    ks = k_by_step(rule, request.steps)
    if as_json or request.format == "json":
        print(json.dumps({"rule": repr(rule), "steps": request.steps, "k": list(ks)}))
        return
    sys.stdout.write("step,k\n")
    sys.stdout.writelines(f"{step},{k!r}\n" for step, k in enumerate(ks))

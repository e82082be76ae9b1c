"""How much code lies between a data file and the first gradient: the modules of negwise that have a frame there.

``negwise train`` and ``negwise run`` on a small file of text pairs, each with every process they start. A module counts
if one of its functions runs, or waits for one that runs, after the data file is first opened and before the first
``backward``. What runs while a module is imported does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.table import Row

MOST = 45
VERBS = {
    "train": ["--model", "siamese-cnn", "--k", "4", "--steps", "2", "--batch-size", "16", "--body-words", "12"],
    "run": ["--steps", "24", "--batch-size", "16", "--no-compare"],
}
TRACER = """
import atexit, json, os, sys, threading, time

DATA, FOLDER = os.environ["NEGWISE_PATH_DATA"], os.environ["NEGWISE_PATH_FOLDER"]
seen, moments = {}, {"opened": None, "backward": None}
BODY_OF_A_FUNCTION = 0x2  # CO_NEWLOCALS: bodies of modules and classes lack it

def of_negwise(frame):
    name = frame.f_globals.get("__name__", "")
    return name == "negwise" or name.startswith("negwise.")

def importing(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and of_negwise(frame):
            return True
        frame = frame.f_back
    return False

def note(frame):
    name = frame.f_globals.get("__name__", "")
    if name in seen or not of_negwise(frame) or not frame.f_code.co_flags & BODY_OF_A_FUNCTION:
        return
    if not importing(frame):
        seen[name] = time.monotonic()

def profile(frame, event, argument):
    if event != "call" or moments["backward"] is not None:
        return
    note(frame)
    if frame.f_code.co_name == "backward" and frame.f_globals.get("__name__") in ("torch._tensor", "torch.autograd"):
        moments["backward"] = time.monotonic()
        dump()

def on_open(event, arguments):
    if event == "open" and moments["opened"] is None and str(arguments[0]) == DATA:
        moments["opened"] = time.monotonic()
        seen.clear()
        frame = sys._getframe()
        while frame is not None:
            note(frame)
            frame = frame.f_back

def dump():
    with open(os.path.join(FOLDER, f"{os.getpid()}.json"), "w") as file:
        json.dump({"seen": seen, **moments}, file)

atexit.register(dump)
sys.addaudithook(on_open)
threading.setprofile(profile)
sys.setprofile(profile)
"""


def modules(verb: str) -> list[str]:
    """The modules between the file and the gradient, sorted."""
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        data, traces, hook = folder / "pairs.jsonl", folder / "traces", folder / "hook"
        _write_pairs(data)
        traces.mkdir()
        hook.mkdir()
        (hook / "sitecustomize.py").write_text(TRACER)
        own = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(hook), os.environ.get("PYTHONPATH", "")])),
            "NEGWISE_PATH_DATA": str(data),
            "NEGWISE_PATH_FOLDER": str(traces),
            "NEGWISE_CACHE": str(folder / "cache"),
        }
        words = [verb, "--data", str(data), "--out", str(folder / "out"), "--device", "cpu", *VERBS[verb]]
        subprocess.run(
            [sys.executable, "-m", "negwise", *words], env={**os.environ, **own}, check=True, capture_output=True
        )
        return _between([json.loads(file.read_text()) for file in traces.glob("*.json")])


def _between(traces: list[dict[str, Any]]) -> list[str]:
    opened = min(trace["opened"] for trace in traces if trace["opened"] is not None)
    backward = min(trace["backward"] for trace in traces if trace["backward"] is not None)
    return sorted({name for trace in traces for name, at in trace["seen"].items() if opened <= at <= backward})


def _write_pairs(path: Path) -> None:
    rows = [{"title": f"word{n} of a title", "body": f"a body that says word{n} and {n * 7 % 97}"} for n in range(200)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def run() -> list[Row]:
    """How many modules; their names go to standard error."""
    rows = []
    for verb in VERBS:
        found = modules(verb)
        print(f"{verb}: {', '.join(found)}", file=sys.stderr)
        rows.append(Row(f"{verb} on text pairs", "modules from file to gradient", len(found), MOST, "lower", "modules"))
    return rows

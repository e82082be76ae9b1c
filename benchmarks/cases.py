"""Cases measured one after the other on a machine that is lent for minutes: the file is whole after each of them.

A case that raises is recorded as failed and the others go on, unless the GPU itself is lost. A case that would not fit
into the time left is left out. With ``resume`` what the file has is kept, and only what is missing or failed is run.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu import settle
from negwise.files import write_atomically
from negwise.losses import raise_deferred_errors

Found = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """``run`` measures; ``seconds`` is what it takes on an H200, roughly."""

    name: str
    seconds: float
    run: Callable[[], Found]


def bar(
    measure: str, value: float | None, bar: float, better: str = "higher", unit: str = "x", aim: float | None = None
) -> Found:
    """A figure held against its bar; ``met`` is None where there is no figure."""
    met = None if value is None else (value >= bar if better == "higher" else value <= bar)
    found: Found = {"measure": measure, "value": value, "better": better, "bar": bar, "unit": unit, "met": met}
    return found if aim is None else {**found, "aim": aim}


def unmeasured(found: Found) -> Found:
    """The same, its bars neither met nor missed: figures of a tiny shape, or of a CPU, say nothing."""
    return {**found, "bars": [{**held, "met": None} for held in found.get("bars", [])]}


@dataclass
class Runner:
    """Runs cases into ``out``, within ``seconds`` of its making."""

    out: Path
    device: torch.device
    seconds: float
    facts: Found
    judge: bool = True
    resume: bool = False

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.found: Found = dict(self.facts) | {"cases": {}}
        if self.resume and self.out.exists():
            self.found["cases"] = json.loads(self.out.read_text())["cases"]

    def run(self, cases: Sequence[Case]) -> bool:
        """Whether every case that was run succeeded."""
        good = True
        for case in cases:
            if self.resume and _done(self.found["cases"].get(case.name, {"failed": ""})):
                continue
            left = self.seconds - (time.monotonic() - self.began)
            if case.seconds > left:
                self.keep(case.name, {"left out": f"takes about {case.seconds:.0f} s, and {left:.0f} s were left"})
                continue
            start = time.monotonic()
            found = self.attempt(case)
            good = good and "failed" not in found
            self.keep(case.name, {**found, "took_s": round(time.monotonic() - start, 1)})
            if not self.alive():
                self.keep(case.name, {**found, "failed": found.get("failed", "") + " The GPU was lost with it."})
                raise SystemExit(3)
        return good

    def attempt(self, case: Case) -> Found:
        try:
            found = case.run()
            settle(self.device)
            raise_deferred_errors()
        except Exception as error:
            return {"failed": f"{type(error).__name__}: {error}", "where": traceback.format_exc(limit=-3).splitlines()}
        return found if self.judge else unmeasured(found)

    def alive(self) -> bool:
        """An illegal access leaves a GPU on which nothing works until the process ends."""
        try:
            settle(self.device)
        except RuntimeError:
            return False
        return True

    def keep(self, name: str, found: Found) -> None:
        self.found["cases"][name] = found
        write_atomically(self.out, json.dumps(self.found, indent=1) + "\n")
        print(name, json.dumps(found), flush=True)


def _done(found: Found) -> bool:
    return "failed" not in found and "left out" not in found


def summary(found: Found) -> str:
    """The bars as lines of a Markdown table."""
    lines = ["| work | measure | value | bar | |", "|---|---|---|---|---|"]
    for name, case in found["cases"].items():
        lines += [f"| {name} | {why}: {case[why][:200]} | | | |" for why in ("failed", "left out") if why in case]
        broken = {side: part["failed"] for side, part in case.items() if isinstance(part, dict) and "failed" in part}
        lines += [f"| {name} | {side} failed: {why[:200]} | | | |" for side, why in broken.items()]
        for held in case.get("bars", []):
            sign = {"higher": "≥", "lower": "≤"}[held["better"]]
            value = "none" if held["value"] is None else f"{held['value']:,.4g} {held['unit']}"
            met = {True: "met", False: "missed", None: ""}[held["met"]]
            lines.append(f"| {name} | {held['measure']} | {value} | {sign} {held['bar']:,.4g} {held['unit']} | {met} |")
    return "\n".join(lines)

"""One row per claim: what was measured, beside what, and the bar it has to clear."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass(frozen=True)
class Row:
    """A measured figure and its bar; ``better`` says on which side of the bar it has to lie."""

    work: str
    measure: str
    value: float
    bar: float | None = None
    better: str = "higher"
    unit: str = "x"

    @property
    def passed(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value >= self.bar if self.better == "higher" else self.value <= self.bar

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "passed": self.passed}


def seconds(calls: dict[str, Callable[[], object]], repeats: int = 7, warmup: int = 1) -> dict[str, float]:
    """Median seconds of each call, the calls taking turns so that a busy moment hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + warmup):
        for name, call in calls.items():
            gc.collect()
            start = time.perf_counter()
            call()
            if turn >= warmup:
                times[name].append(time.perf_counter() - start)
    return {name: median(spent) for name, spent in times.items()}


def peak_extra_mb(call: Callable[[], object]) -> float:
    """Peak resident memory during ``call`` above what was resident before it, in MB, sampled every 0.5 ms."""
    peak = resident_mb()
    base = peak
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, resident_mb())
            time.sleep(0.0005)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        result = call()
        peak = max(peak, resident_mb())
    finally:
        done.set()
        watcher.join()
    del result
    return peak - base


def resident_mb() -> float:
    """Resident memory of this process in MB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6

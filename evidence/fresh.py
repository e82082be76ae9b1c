"""K for the metric against the best fixed K of a sweep, on seeds that nothing was chosen on, from its own record."""

from __future__ import annotations

import json
from pathlib import Path

from evidence.markdown import signed, span, table
from negwise.report import metric_name

RECORD = Path(__file__).parents[1] / "benchmarks" / "results" / "online.json"
NAMES = {"ml-1m": "ML-1M", "reuters": "Reuters", "docs": "docs", "mind": "MIND", "clicks": "clicks"}


def fresh(record: Path = RECORD, rule: str = "metric") -> str:
    """The rule less the best fixed K of each task, with what it may lose decided beforehand."""
    rows = []
    for name, task in json.loads(record.read_text())["tasks"].items():
        found = task["against the best fixed K"].get(rule)
        if found is None:
            continue
        gap = f"{signed(found['mean'])} ({span((found['low'], found['high']))})"
        best = task["best fixed K"]
        rows.append(
            [NAMES.get(name, name), metric_name(task["metric"]), best, f"{found['gain']:.4f}", gap, found["verdict"]]
        )
    return table(["data", "metric", "best fixed K", "its gain over K = 1", "`metric` less it", "verdict"], rows)

"""The runs of the second study by what they share: task, K and seed; their contrasts, in few words.

A difference has its 95% interval: seeds and queries crossed; in news Student's t over folds; of one seed, over queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.crossed import Contrast
from evidence.markdown import percent, with_interval
from evidence.quality import Measured, measure
from evidence.second_cells import DATA
from evidence.second_runs import Run

Found = Sequence[Run]
NOT_RUN = "not run yet"


def only(found: Found, **of: Any) -> list[Run]:
    """Runs with these values, as ``task="items", noise=0.2``."""
    return [run for run in found if all(run[name] == value for name, value in of.items())]


def tasks_of(found: Found) -> dict[str, str]:
    """The tasks of these runs, with the metric of each."""
    return {run["task"]: run["metric"] for run in found}


def arms(found: Found, metric: str) -> dict[str, Measured]:
    """Every K that the first seed has, over the seeds that have them all; empty where an interval needs more seeds."""
    ranks = {(run["k"], run["seed"]): run["ranks"] for run in found}
    first = min((run["seed"] for run in found), default=None)
    ks = sorted({k for k, seed in ranks if seed == first}, key=lambda k: (not k.isdecimal(), k.zfill(9)))
    seeds = [seed for seed in sorted({seed for _, seed in ranks}) if all((k, seed) in ranks for k in ks)]
    folds = DATA[found[0]["task"]].get("folds") if found else None
    return measure(ranks, ks, seeds, metric, folds) if len(seeds) > (folds is not None) else {}


def fewest_seeds(each: Mapping[str, Measured]) -> int:
    return min((len(one.seeds) for one in each.values()), default=0)


def best_of(each: Mapping[str, Measured]) -> str:
    """The fixed K with the highest mean on test."""
    return max((k for k in each if k.isdecimal()), key=lambda k: each[k].mean)


def both_metrics(found: Found) -> list[tuple[str, str, list[Run], dict[str, Measured]]]:
    """Task, metric, runs and arms, for AUC and for the task's own metric."""
    rows = [(task, metric, only(found, task=task)) for task, top in tasks_of(found).items() for metric in ("auc", top)]
    return [(task, metric, mine, arms(mine, metric)) for task, metric, mine in rows]


def gained(each: Mapping[str, Measured], k: str, other: str = "1") -> str:
    return with_interval(each[k] - each[other]) if k != other and {k, other} <= set(each) else ""


def verdict(one: Measured | Contrast) -> str:
    """What an interval says of a difference."""
    found = one.contrast if isinstance(one, Measured) else one
    return "yes" if found.low > 0 else "no, the other way" if found.high < 0 else "not shown"


def middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.median(known):,.0f}" if known else ""


def with_percent(one: Contrast) -> str:
    return f"{percent(one.mean)} ({percent(one.low)} to {percent(one.high)})"

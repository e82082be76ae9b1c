"""What the second study says of sizes: how the K that is needed goes with the cut-off and the number of candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.crossed import Contrast, fold_contrast
from evidence.markdown import brief, table
from evidence.quality import Floats
from evidence.rules import CUTS
from evidence.second_arms import NOT_RUN, Found, only, tasks_of


@dataclass(frozen=True)
class Needed:
    """hit@n of one data set: M / n, the K that brings 90% of what ever more K bring, and the best K."""

    n: int
    ratio: float
    k: float
    best: float


def needed(ks: Floats, hits: Floats) -> float:
    """K with 90% of the gain, from a curve ``a (K - 1) / (K - 1 + h)`` through the hits less those of K = 1 (K,).

    A curve, since the K that were trained are far apart: straight lines in log K between them give too small a power.
    """
    halves = np.geomspace(0.1, ks[-1], 600)
    shapes = (ks - 1) / (ks - 1 + halves[:, None])
    gains = hits - hits[0]
    scales = shapes @ gains / (shapes**2).sum(1)
    best = int(np.argmin(((scales[:, None] * shapes - gains) ** 2).sum(1)))
    return float(1 + 9 * halves[best])


def depths(found: Found) -> dict[str, list[Needed]]:
    """hit@n for several cut-offs, of every task: from its ranks; none where K = 1 is best."""
    every: dict[str, list[Needed]] = {}
    for task in tasks_of(found):
        mine = [run for run in only(found, task=task) if run["k"] != "online"]
        seeds = {k: {run["seed"] for run in only(mine, k=k)} for k in dict.fromkeys(run["k"] for run in mine)}
        common = set.intersection(*seeds.values())
        of = {only(mine, k=k)[0]["path"]["k"][-1]: k for k in seeds}  # metric has a number too
        ks, size = np.array(sorted(of), float), float(np.mean([run["candidates"] for run in mine]))
        if len(ks) < 3 or ks[0] != 1 or not common:
            continue
        above = [[run["ranks"].above for run in only(mine, k=of[k]) if run["seed"] in common] for k in ks.tolist()]
        every[task] = []
        for n in (n for n in CUTS if n < size):
            hits = np.array([np.mean([np.mean(each < n) for each in some]) for some in above])
            if hits.max() > hits[0]:
                every[task].append(Needed(n, size / n, needed(ks, hits), float(ks[int(hits.argmax())])))
    return every


def sizes(found: Found) -> str:
    """hit@n by cut-off: M / n, the K that has nearly all of the gain, and the best K."""
    rows = [
        [task, f"{one.ratio * one.n:,.0f}", str(one.n), f"{one.ratio:,.0f}", f"{one.k:,.0f}", f"{one.best:,.0f}"]
        for task, each in depths(found).items()
        for one in each
    ]
    return table(["data", "M", "n", "M / n", "K for 90% of the gain in hit@n", "best K"], rows)


def power(found: Mapping[str, Sequence[Needed]], within: Callable[[str, Needed], Any]) -> float:
    """p of K = c (M / n)^p for 90% of the gain, by least squares of log K; c is another for each ``within``."""
    each = [(within(task, one), np.log(one.ratio), np.log(one.k)) for task, some in found.items() for one in some]
    x, y = np.array([one[1] for one in each]), np.array([one[2] for one in each])
    for group in {one[0] for one in each}:
        mine = [one[0] == group for one in each]
        x[mine] -= x[mine].mean()
        y[mine] -= y[mine].mean()
    return float(x @ y / (x @ x))


def jackknife(found: Mapping[str, Sequence[Needed]], within: Callable[[str, Needed], Any]) -> Contrast:
    """`power` with its interval: Student's t over data sets, each left out once."""
    whole, many = power(found, within), len(found)
    others = [power({task: found[task] for task in found if task != left}, within) for left in found]
    return fold_contrast(np.array([many * whole - (many - 1) * other for other in others]))


def say_sizes(found: Found) -> str:
    """How the K that is needed goes with the cut-off, and with the number of candidates."""
    every = {task: each for task, each in depths(found).items() if len(each) > 1}
    if len(every) < 3:
        return NOT_RUN
    cuts, data = jackknife(every, lambda task, _: task), jackknife(every, lambda _, one: one.n)
    return (
        f"K for 90% of the gain in hit@n goes as (M / n)^p, p = {brief(cuts, 2)} over n, {brief(data, 2)} over M, in "
        f"{len(every)} data sets"
    )

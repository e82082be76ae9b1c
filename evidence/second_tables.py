"""Tables of the second study, from its records: what the plan says will be said. A difference has its 95% interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evidence.markdown import percent, table, with_interval
from evidence.quality import Measured, measure
from evidence.second_study import DATA, RANKS
from negwise.metrics import Ranks
from negwise.report import metric_name

Found = Sequence[dict[str, Any]]
EARLY = 0.9
"""A run that has its best step in the first nine tenths had stopped rising."""


def arms(found: Found, task: str, metric: str, **of: Any) -> dict[str, Measured]:
    """Every K that has all seeds of this task, among records with these values (``noise=0.2``)."""
    mine = [one for one in found if one["task"] == task and all(one[name] == value for name, value in of.items())]
    seeds = sorted({one["seed"] for one in mine})
    ranks = {(one["k"], one["seed"]): Ranks(*(one[part].astype(np.int64) for part in RANKS)) for one in mine}
    whole = [k for k in dict.fromkeys(one["k"] for one in mine) if all((k, seed) in ranks for seed in seeds)]
    return measure(ranks, whole, seeds, metric, DATA[task].get("folds"))


def tasks_of(found: Found) -> dict[str, str]:
    """The tasks of these records, with the metric of each."""
    return {one["task"]: one["metric"] for one in found}


def ends(found: Found) -> str:
    """Each K less K = 1 at the end of training, and how many of its runs had stopped rising."""
    rows = []
    for task, top in tasks_of(found).items():
        for metric in ("auc", top):
            each = arms(found, task, metric)
            for k in each:
                runs = [one for one in found if (one["task"], one["k"]) == (task, k)]
                stopped = sum(one["best"] <= EARLY * one["steps"] for one in runs)
                gain = "" if k == "1" or "1" not in each else with_interval(each[k] - each["1"])
                rows.append([task, metric_name(metric), k, f"{each[k].mean:.4f}", gain, f"{stopped} of {len(runs)}"])
    return table(["data", "metric", "K", "test", "less K = 1", "had stopped rising"], rows)


def losses(found: Found) -> str:
    """The share of the best fixed K's gain that each rule loses; a rule is whatever has no whole number for K."""
    rows = []
    for task, top in tasks_of(found).items():
        for metric in ("auc", top):
            each = arms(found, task, metric)
            best = max((k for k in each if k.isdecimal()), key=lambda k: each[k].mean)
            gain = each[best].mean - each["1"].mean
            for k in each:
                share = percent((each[best].mean - each[k].mean) / gain)
                rows.append([task, metric_name(metric), best, k, share, with_interval(each[k] - each[best])])
    return table(["data", "metric", "best fixed K", "rule", "share lost", "less the best"], rows)


def rates(found: Found) -> str:
    """The rate with the best validation score at each K, in the task's own metric; is it inside the grid?"""
    rows = []
    for task, metric in tasks_of(found).items():
        for k in dict.fromkeys(one["k"] for one in found if one["task"] == task):
            scores: dict[float, float] = {}
            for one in found:
                if (one["task"], one["k"]) == (task, k):
                    scores[one["scale"]] = max(each[metric] for each in one["curves"]["val"])
            best = max(scores, key=lambda scale: scores[scale])
            edge = "edge" if best in (min(scores), max(scores)) else "inside"
            rows.append([task, metric_name(metric), k, f"{best:g}", f"{scores[best]:.4f}", edge])
    return table(["data", "metric", "K", "best rate, over the recipe's", "validation", "of the grid"], rows)


def noise(found: Found) -> str:
    """The fixed K with the highest mean at each share of wrong positives, and its gain over K = 1."""
    rows = []
    for task, top in tasks_of(found).items():
        for share in sorted({one["noise"] for one in found if one["task"] == task}):
            for metric in ("auc", top):
                each = arms(found, task, metric, noise=share)
                best = max((k for k in each if k.isdecimal()), key=lambda k: each[k].mean)
                gain = "" if best == "1" else with_interval(each[best] - each["1"])
                rows.append([task, f"{share:.0%}", metric_name(metric), best, gain])
    return table(["data", "wrong positives", "metric", "best K", "its gain over K = 1"], rows)


TABLES = {"end-items": ends, "end-matching": ends, "end-docs": ends, "rules": losses, "rates": rates, "noise": noise}
"""The table of each block; what other blocks have is read like the end of training."""


def table_of(block: str, found: Found) -> str:
    """The table of one block, from all records."""
    return TABLES.get(block, ends)([one for one in found if one["block"] == block])

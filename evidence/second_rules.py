"""What the second study says of rules without a sweep, and of each K at its own best learning rate."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np

from benchmarks.crossed import Contrast
from evidence.markdown import brief, percent, table
from evidence.quality import Measured, ratio
from evidence.rules import RULES
from evidence.second_arms import NOT_RUN, Found, arms, best_of, both_metrics, only, tasks_of, with_percent
from evidence.second_pilots import star_of
from negwise.report import metric_name

READ_OFF = ("K* of the pilot", "M / n_w", "11 (M / n_w)^.36")
"""Rules whose K was not trained: their share is read off between those that were."""


def shares_lost(each: Mapping[str, Measured]) -> dict[str, Contrast]:
    """Of the best fixed K's gain over K = 1, with its interval."""
    best = best_of(each)
    return {k: ratio(each[best] - each[k], each[best] - each["1"]) for k in each if k not in ("1", best)}


def losses(found: Found) -> str:
    """The share of the best fixed K's gain that each rule loses."""
    rows = []
    for task, metric, mine, each in both_metrics(found):
        if "1" not in each or best_of(each) == "1":
            continue
        best = best_of(each)
        told = {k: (k, with_percent(lost)) for k, lost in shares_lost(each).items()}
        told |= {name: (f"{k:,.0f}", percent(lost)) for name, (k, lost) in read_off(mine, each).items()}
        rows += [[task, metric_name(metric), best, rule, *cells] for rule, cells in told.items()]
    return table(["data", "metric", "best fixed K", "rule", "K", "share lost"], rows)


def read_off(found: Found, each: Mapping[str, Measured]) -> dict[str, tuple[float, float]]:
    """K and the share lost of rules whose K was not trained, by a straight line in log K."""
    ks = sorted(int(k) for k in each if k.isdecimal())
    means = np.array([each[str(k)].mean for k in ks])
    stars = [star for run in only(found, k="1") if (star := star_of(run)) is not None]
    candidates = float(np.mean([run["candidates"] for run in found]))
    one = SimpleNamespace(
        k_star=float(np.median(stars)) if stars else None, top_n=found[0]["metric"], candidates=candidates
    )
    chosen = {name: RULES[name](one) for name in READ_OFF if stars or name != READ_OFF[0]}  # type: ignore[arg-type]
    shares = (means.max() - means) / (means.max() - means[0])
    return {name: (k, float(np.interp(np.log(k), np.log(ks), shares))) for name, k in chosen.items()}


def say_rules(found: Found) -> str:
    """The share of the gain in the top n that rules lose, task by task."""
    told: dict[str, list[str]] = {"metric": [], "online": []}
    tasks = []
    for task, top in tasks_of(found).items():
        each = arms(only(found, task=task), top)
        if set(told) <= set(each) and best_of(each) != "1":
            tasks.append(task)
            lost = shares_lost(each)
            told["metric"].append(with_percent(lost["metric"]))
            told["online"].append(percent(lost["online"].mean))
    parts = [f"{name} {', '.join(told[rule])}" for name, rule in (("`metric`", "metric"), ("online K", "online"))]
    return f"{'; '.join(parts)} of the gain in the top n is lost in {', '.join(tasks)}" if tasks else NOT_RUN


def best_rate(found: Found) -> tuple[float, bool]:
    """The rate with the best validation score, over the recipe's, and whether it is at the edge of the grid."""
    scores = {run["scale"]: max(run["curves"]["val"][run["metric"]]) for run in found}
    best = max(scores, key=lambda scale: scores[scale])
    return best, best in (min(scores), max(scores))


def rates(found: Found) -> str:
    """The rate with the best validation score at each K, in the task's own metric; is it inside the grid?"""
    rows = []
    for task, metric in tasks_of(found).items():
        for k in dict.fromkeys(run["k"] for run in only(found, task=task)):
            mine = only(found, task=task, k=k)
            best, edge = best_rate(mine)
            (run,) = only(mine, scale=best)
            scores = [f"{max(run['curves']['val'][metric]):.4f}", f"{run['test'][metric]:.4f}"]
            rows.append([task, metric_name(metric), k, f"{best:g}", *scores, "edge" if edge else "inside"])
    return table(["data", "metric", "K", "best rate, over the recipe's", "validation", "test", "of the grid"], rows)


def say_rates(found: Found) -> str:
    """The gain of K = 1,000 with each K at its own best rate, and how many best rates are at the edge."""
    told, edges, many = [], 0, 0
    for task, metric in tasks_of(found).items():
        chosen = []
        for k in dict.fromkeys(run["k"] for run in only(found, task=task)):
            mine = only(found, task=task, k=k)
            best, edge = best_rate(mine)
            chosen += only(mine, scale=best)
            edges, many = edges + edge, many + 1
        each = arms(chosen, metric)
        told += [f"{brief(each['1000'] - each['1'])} in {task}"] if {"1", "1000"} <= set(each) else []
    words = f"at best rates K = 1,000 gains {', '.join(told)}; {edges} of {many} at the edge of the grid"
    return words if told else NOT_RUN

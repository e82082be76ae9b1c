"""What the second study says of the length of training: the end, longer pilots, and K = 1 and 4 in equal time."""

from __future__ import annotations

import numpy as np

from evidence.markdown import brief, table
from evidence.second_arms import NOT_RUN, Found, arms, both_metrics, gained, middle, only, tasks_of, verdict
from evidence.second_pilots import Pilot, log_of, pilot
from evidence.second_runs import Run
from negwise.report import metric_name

EARLY = 0.9
"""A run that has its best step in the first nine tenths had stopped rising."""
LENGTHS = (0.1, 0.25, 0.5, 1.0)
"""Shares of a pilot at which K* is read."""


def stopped(found: Found) -> int:
    """How many of these runs had stopped rising."""
    return sum(run["best"] <= EARLY * run["steps"] for run in found)


def until_as_good(found: Found, k: str, metric: str) -> str:
    """Steps, and seconds, until K is as good on validation as K = 1 ever is, over those of K = 1; medians of seeds."""
    shares = []
    for one in only(found, k="1"):
        for run in only(found, k=k, seed=one["seed"]):
            mine, theirs = (np.array(each["curves"]["val"][metric]) for each in (run, one))
            reached = np.flatnonzero(mine >= theirs.max())
            if theirs.argmax() == 0:  # it never learnt
                continue
            step = run["curves"]["val"]["step"][reached[0]] if len(reached) else np.inf
            steps = step / one["curves"]["val"]["step"][int(theirs.argmax())]
            shares.append((steps, steps * (run["seconds"] / run["steps"]) / (one["seconds"] / one["steps"])))
    if not shares:
        return ""
    steps, seconds = np.median(shares, axis=0)
    return "not reached" if np.isinf(steps) else f"{steps:.2f}, {seconds:.2f}"


def ends(found: Found) -> str:
    """Each K less K = 1, how many of its runs had stopped rising, and how soon it is as good as K = 1."""
    rows = []
    for task, metric, mine, each in both_metrics(found):
        for k in each:
            runs = only(mine, k=k)
            cells = [gained(each, k), f"{stopped(runs)} of {len(runs)}", until_as_good(mine, k, metric)]
            rows.append([task, metric_name(metric), k, f"{each[k].mean:.4f}", *cells])
    head = ["data", "metric", "K", "test", "less K = 1", "had stopped rising", "steps, seconds until K = 1's best"]
    return table(head, rows)


def say_ends(found: Found) -> str:
    """The largest K less K = 1, where most runs of K = 1 had stopped rising."""
    told = []
    for task, top in tasks_of(found).items():
        mine = only(found, task=task)
        each, ones = arms(mine, top), only(mine, k="1")
        most = max((k for k in each if k.isdecimal()), key=int, default="1")
        if most != "1":
            gap = each[most] - each["1"]
            word = "K = 1 still rises" if 2 * stopped(ones) <= len(ones) else verdict(gap)
            told.append(f"{task}: {word}, K = {int(most):,} {brief(gap)}")
    return f"less K = 1, top n: {'; '.join(told)}" if told else NOT_RUN


def lengths(found: Found) -> str:
    """K* of every pilot after a part of it."""
    rows = []
    for task in tasks_of(found):
        for share in LENGTHS:
            each = [(pilot_of(run, share), pilot_of(run, 1.0)) for run in only(found, task=task, k="1")]
            ks = [now.k for now, _ in each if now is not None]
            if ks:
                held = sum(holds(now, end) for now, end in each)
                cells = [f"{np.median(ks):,.0f}", f"{min(ks):,.0f} to {max(ks):,.0f}", f"{held} of {len(each)}"]
                rows.append([task, f"{share:.0%}", *cells])
    head = ["data", "part of the pilot", "K\\*, median", "over seeds", "90% interval holds K\\* of the whole"]
    return table(head, rows)


def pilot_of(run: Run, share: float) -> Pilot | None:
    return pilot(log_of(run), run["candidates"] - 1, share)


def holds(now: Pilot | None, end: Pilot | None) -> bool:
    """Whether K* of the whole lies in the interval of a part; a pilot that says nothing holds nothing."""
    return now is not None and end is not None and now.holds(end.k)


def say_lengths(found: Found) -> str:
    """How K* grows, and how many intervals of a quarter hold K* of the whole."""
    told, held, many = [], 0, 0
    for task in tasks_of(found):
        early, quarter, whole = (
            [pilot_of(run, share) for run in only(found, task=task, k="1")] for share in (0.1, 0.25, 1.0)
        )
        first, last = (middle([None if one is None else one.k for one in some]) for some in (early, whole))
        if first and last:
            told.append(f"{first} to {last} in {task}")
            held += sum(holds(now, end) for now, end in zip(quarter, whole, strict=True))
            many += len(whole)
    words = f"K\\* from a tenth to the end: {', '.join(told)}; {held} of {many} intervals of a quarter hold the last"
    return words if told else NOT_RUN


def equal_time(found: Found) -> str:
    rows = [
        [task, metric_name(metric), k, str(only(mine, k=k)[0]["steps"]), f"{each[k].mean:.4f}", gained(each, k, "100")]
        for task, metric, mine, each in both_metrics(found)
        for k in each
    ]
    return table(["data", "metric", "K", "steps", "test", "less K = 100"], rows)


def say_time(found: Found) -> str:
    """K = 1 and 4 less K = 100 in the same time, on the task's own metric."""
    told = []
    for task, top in tasks_of(found).items():
        each = arms(only(found, task=task), top)
        if {"1", "4", "100"} <= set(each):
            told.append(f"{' and '.join(brief(each[k] - each['100']) for k in ('1', '4'))} in {task}")
    return f"K = 1 and 4 less K = 100, top n: {'; '.join(told)}" if told else NOT_RUN

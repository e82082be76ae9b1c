"""Quality per second: the recorded curves over the time that their steps take when each K is alone on the machine.

A record with a pace has the milliseconds of a step at some K. A step of a schedule takes what its K takes, between two
timed K by a straight line in log K.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.analysis import Analysis
from evidence.bootstrap import Floats, student
from evidence.figures import compared, curve_panel, curve_rows
from evidence.markdown import signed, span, table
from negwise.errors import InputError
from negwise.protocols import OpenLoopRule
from negwise.report import Figure, quantitative, round_digits
from negwise.schedule import parse_rule


def step_seconds(analysis: Analysis, k: Floats) -> Floats:
    """Seconds of a step at each of these K."""
    ms = {float(each): value for each, value in analysis.record["pace"]["ms"].items()}
    timed = sorted(ms)
    if k.min() < timed[0] or k.max() > timed[-1]:
        raise InputError(
            f"{analysis.name}: K goes from {k.min():g} to {k.max():g}, but steps were timed from {timed[0]:g} to "
            f"{timed[-1]:g}. Time them again with: python -m evidence seconds"
        )
    return np.interp(np.log(k), np.log(timed), [ms[each] for each in timed]) / 1000


def clock(analysis: Analysis, rule: str) -> Floats:
    """Seconds after 0, 1, ... steps of training by this rule, (steps + 1,)."""
    steps, law = int(analysis.record["steps"]), parse_rule(rule)
    assert isinstance(law, OpenLoopRule)
    ks = np.array([law(step / max(steps - 1, 1)) for step in range(steps)])
    return np.concatenate(([0.0], np.cumsum(step_seconds(analysis, ks))))


def auc_after(analysis: Analysis, rule: str, seconds: float) -> dict[int, float]:
    """Validation AUC of each seed after so many seconds: a straight line between evaluations, then the last."""
    runs = [run for arm in analysis.record["arms"] if arm["rule"] == rule for run in arm["seeds"]]
    if not runs:
        return {}
    when, curves = clock(analysis, rule), {run["seed"]: run["curve"]["val"] for run in runs}
    return {seed: float(np.interp(seconds, when[curve["step"]], curve["auc"])) for seed, curve in curves.items()}


def seconds(found: Sequence[Analysis]) -> str:
    """Every arm at the time that fixed K* takes in all; a schedule with fewer seeds than the others is marked."""
    rows = []
    for one in found:
        star = str(one.k_star)
        budget = float(clock(one, star)[-1])
        level = auc_after(one, star, budget)
        for rule in (*map(str, one.fixed), *(each for each in compared(one) if ":" in each)):
            aucs = auc_after(one, rule, budget)
            if len(aucs) < 2:  # of which no interval can be had
                continue
            takes = float(clock(one, rule)[-1])
            ended = f", its end after {takes:.1f} s" if takes < budget else ""
            gaps = np.array([auc - level[seed] for seed, auc in aucs.items()])
            fewer = "" if rule in one.whole else f", {len(aucs)} of {len(level)} seeds"
            rows.append(
                [
                    one.name,
                    f"**{rule}**" if rule == star else f"{rule}{fewer}",
                    f"{1000 * takes / one.record['steps']:.2f}",
                    f"{takes:.1f}",
                    f"{budget:.1f}",
                    f"{np.mean(list(aucs.values())):.4f}{ended}",
                    "" if rule == star else f"{signed(float(gaps.mean()))} ({span(student(gaps))})",
                ]
            )
    head = ["task", "K", "ms a step", "seconds in all", "those of K*", "validation AUC then", "less fixed K*, 95% t"]
    return table(head, rows)


def per_second(analysis: Analysis) -> Figure:
    """Validation AUC and the top-n metric over seconds."""
    clocks = {rule: clock(analysis, rule) for rule in compared(analysis) if rule in analysis.whole}
    rows = [
        row | {"seconds": round_digits(float(clocks[str(row["arm"])][int(str(row["step"]))]))}
        for row in curve_rows(analysis, list(clocks))
    ]
    x = quantitative("seconds", "seconds of training", zero=True, scale={"nice": False})
    where = analysis.record["pace"]["machine"]["name"]
    return Figure(
        f"{analysis.name}-seconds",
        f"{analysis.record['title']}: per second",
        f"Mean of seeds. Seconds of optimiser steps alone, each K by itself on one machine ({where}).",
        tuple(curve_panel(analysis, metric, x, list(clocks)) for metric in ("auc", analysis.top_n)),
        rows,
        columns=2,
    )

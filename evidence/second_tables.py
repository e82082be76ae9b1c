"""What the second study says: a table and a sentence for each of its questions, from its runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.crossed import fold_contrast
from evidence.markdown import brief, table, with_interval
from evidence.quality import Measured
from evidence.second_arms import NOT_RUN, Found, arms, best_of, fewest_seeds, gained, middle, only, tasks_of
from evidence.second_cells import SHARES, STARS, cells_of
from evidence.second_pilots import best_if_wrong, star_if_wrong, star_of
from evidence.second_rules import losses, rates, say_rates, say_rules
from evidence.second_runs import Run, cell_of
from evidence.second_sizes import say_sizes, sizes
from evidence.second_training import ends, equal_time, lengths, say_ends, say_lengths, say_time
from negwise.report import metric_name

ENDS = ("end-items", "end-matching", "end-docs", "end-news")
PAIRS = (("K = 100", "100"), ("online K", "online"), ("ANS", "ans"))
"""What is compared with K*."""


def of_block(found: Found, block: str) -> list[Run]:
    """The runs of a block, in the order of the plan; of tasks with all of their runs, so that nobody chose which."""
    there = {cell_of(run): run for run in found}
    cells = cells_of(block)
    begun = {cell.task for cell in cells if cell not in there}
    return [there[cell] for cell in cells if cell.task not in begun]


def noise(found: Found) -> str:
    """The best fixed K at each share of wrong positives, K* and what it should be, and where online K ends."""
    rows = []
    for task, top in tasks_of(found).items():
        right = only(found, task=task, k="1", noise=0.0)
        for share in SHARES:
            mine = only(found, task=task, noise=share)
            cells = []
            for metric in ("auc", top):
                each = arms(mine, metric)
                best = best_of(each) if each else ""
                cells += [best, gained(each, best)]
            stars: list[list[float | None]] = [
                [star_of(run) for run in only(mine, k="1")],
                [star_if_wrong(run, share) for run in right],
                [best_if_wrong(run, share) for run in right],
                [run["path"]["k"][-1] for run in only(mine, k="online")],
            ]
            if mine:
                rows.append([task, f"{share:.0%}", *cells, *map(middle, stars)])
    head = ["data", "wrong", "best K, AUC", "its gain", "best K, top n", "its gain", "K\\* of the pilots"]
    return table([*head, "formula", "its definitions", "online K at the end"], rows)


def say_noise(found: Found) -> str:
    """From no wrong labels to the most: whether more negatives pay less on AUC, and what K* does."""
    told = []
    for task in tasks_of(found):
        mine = only(found, task=task)
        right, wrong = (arms(only(mine, noise=share), "auc") for share in (SHARES[0], SHARES[-1]))
        if {"20", "1000"} <= set(right) & set(wrong) and fewest_seeds(right) == fewest_seeds(wrong):
            change = (wrong["1000"] - wrong["20"]) - (right["1000"] - right["20"])
            stars = [middle([star_of(run) for run in only(mine, k="1", noise=share)]) for share in SHARES]
            told.append(f"{brief(change)} in {task}, K\\* {stars[0]} to {stars[-1]}")
    words = f"with {SHARES[-1]:.0%} wrong, K = 1,000 less 20 in AUC changes by {'; '.join(told)}"
    return words if told else NOT_RUN


def say_models(found: Found) -> str:
    """K = 100, online K and ANS less K* on AUC: means over models."""
    told = []
    for name, rule in PAIRS:
        gaps = []
        for task in tasks_of(found):
            each, star = arms(only(found, task=task), "auc"), str(STARS[task])
            other = f"ans:{star}" if rule == "ans" else rule
            gaps += [(each[other] - each[star]).mean] if {other, star} <= set(each) else []
        told += [f"{name} {brief(fold_contrast(np.array(gaps)))}"] if len(gaps) > 1 else []
    return f"less fixed K\\* on AUC, mean of models: {'; '.join(told)}" if told else NOT_RUN


PLACES: Mapping[str, dict[str, Any]] = {
    "popularity": {"task": "items", "negatives": "popularity", "correct": False},
    "popularity, corrected": {"task": "items", "negatives": "popularity", "correct": True},
    "ten mined first": {"task": "mined"},
}
PLAIN: Mapping[str, dict[str, Any]] = {"items": {"task": "items", "negatives": ""}, "mined": {"task": "matching"}}
"""Where negatives are drawn as usual, by the task that has others."""


def places(found: Found) -> list[tuple[str, str, dict[str, Measured]]]:
    """Other negatives less the usual ones at each K, by place and metric."""
    rows = []
    for name, of in PLACES.items():
        mine, usual = only(found, **of), only(found, **PLAIN[of["task"]])
        for metric in ("auc", *dict.fromkeys(run["metric"] for run in mine)):
            these, those = arms(mine, metric), arms(usual, metric)
            if these and fewest_seeds(these) == fewest_seeds(those):
                rows.append((name, metric, {k: these[k] - those[k] for k in these if k in those}))
    return rows


def negatives(found: Found) -> str:
    rows = [
        [name, metric_name(metric), k, with_interval(gap)]
        for name, metric, each in places(found)
        for k, gap in each.items()
    ]
    return table(["negatives", "metric", "K", "less the usual ones"], rows)


def say_negatives(found: Found) -> str:
    """The top n with other negatives less that with the usual ones, at K = 100."""
    told = [f"{name} {brief(each['100'])}" for name, metric, each in places(found) if metric != "auc" and "100" in each]
    return f"top n at K = 100, less the usual ones: {'; '.join(told)}" if told else NOT_RUN


@dataclass(frozen=True)
class Question:
    """The blocks that answer it, its table and its sentence; ``beside`` has runs that are read with them."""

    blocks: tuple[str, ...]
    table: Callable[[Found], str]
    sentence: Callable[[Found], str]
    beside: tuple[str, ...] = ()

    def answer(self, found: Found, make: Callable[[Found], str]) -> str:
        own, others = ([run for block in some for run in of_block(found, block)] for some in (self.blocks, self.beside))
        return make([*own, *others]) if own else NOT_RUN


QUESTIONS = {
    "ends": Question(ENDS, ends, say_ends),
    "rules": Question(("rules",), losses, say_rules),
    "rates": Question(("rates",), rates, say_rates),
    "sizes": Question(("sizes",), sizes, say_sizes, ("rules",)),
    "noise": Question(("noise",), noise, say_noise),
    "lengths": Question(ENDS, lengths, say_lengths),
    "models": Question(("models",), ends, say_models),
    "negatives": Question(("negatives",), negatives, say_negatives),
    "time": Question(("time",), equal_time, say_time),
}


def tables_of(found: Found) -> dict[str, str]:
    """The table of each question; of one without runs, that it is not run yet."""
    return {f"second-{name}": one.answer(found, one.table) for name, one in QUESTIONS.items()}


def sentences(found: Found) -> dict[str, str]:
    """The sentence that the runs allow, for each question."""
    return {f"second-{name}": one.answer(found, one.sentence) for name, one in QUESTIONS.items()}

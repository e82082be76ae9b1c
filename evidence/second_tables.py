"""What the second study says: a table and a sentence for each of its questions, from its runs.

A difference has its 95% interval: seeds and queries crossed; in news Student's t over folds; of one seed, over queries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.crossed import Contrast, fold_contrast
from evidence.markdown import brief, percent, table, with_interval
from evidence.quality import Floats, Measured, measure, ratio
from evidence.rules import CUTS, RULES
from evidence.second_cells import DATA, SHARES, STARS, cells_of
from evidence.second_pilots import Pilot, best_if_wrong, log_of, pilot, star_if_wrong, star_of
from evidence.second_runs import Run, cell_of
from negwise.report import metric_name

Found = Sequence[Run]
NOT_RUN = "not run yet"
EARLY = 0.9
"""A run that has its best step in the first nine tenths had stopped rising."""
ENDS = ("end-items", "end-matching", "end-docs", "end-news")
LENGTHS = (0.1, 0.25, 0.5, 1.0)
"""Shares of a pilot at which K* is read."""
PAIRS = (("K = 100", "100"), ("online K", "online"), ("ANS", "ans"))
"""What is compared with K*."""
READ_OFF = ("K* of the pilot", "M / n_w", "11 (M / n_w)^.36")
"""Rules whose K was not trained: their share is read off between those that were."""


def of_block(found: Found, block: str) -> list[Run]:
    """The runs of a block, in the order of the plan."""
    place = {cell: at for at, cell in enumerate(cells_of(block))}
    mine = [run for run in found if cell_of(run) in place]
    return sorted(mine, key=lambda run: place[cell_of(run)])


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


def middle(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.median(known):,.0f}" if known else ""


def say_noise(found: Found) -> str:
    """From no wrong labels to the most: whether more negatives pay less on AUC, and what K* does."""
    told = []
    for task in tasks_of(found):
        mine = only(found, task=task)
        right, wrong = (arms(only(mine, noise=share), "auc") for share in (SHARES[0], SHARES[-1]))
        if {"20", "1000"} <= set(right) & set(wrong) and _size(right) == _size(wrong):
            change = (wrong["1000"] - wrong["20"]) - (right["1000"] - right["20"])
            stars = [middle([star_of(run) for run in only(mine, k="1", noise=share)]) for share in SHARES]
            told.append(f"{brief(change)} in {task}, K\\* {stars[0]} to {stars[-1]}")
    words = f"with {SHARES[-1]:.0%} wrong, K = 1,000 less 20 in AUC changes by {'; '.join(told)}"
    return words if told else NOT_RUN


def _size(each: Mapping[str, Measured]) -> int:
    return min((len(one.seeds) for one in each.values()), default=0)


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


def with_percent(one: Contrast) -> str:
    return f"{percent(one.mean)} ({percent(one.low)} to {percent(one.high)})"


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
    parts = [f"{name} {', '.join(told[rule])}" for name, rule in (("`metric`", "metric"), PAIRS[1])]
    return f"{'; '.join(parts)} of the gain in the top n is lost in {', '.join(tasks)}" if tasks else NOT_RUN


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
            if these and _size(these) == _size(those):
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

"""The tables of the tasks as Markdown, from records alone. A difference has its 95% interval in brackets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evidence.analysis import LAMS, Analysis
from evidence.markdown import bare, brief, percent, signed, small, span, table, with_interval
from evidence.quality import Measured, holm
from negwise import auc, k_for_metric
from negwise.report import metric_name

Analyses = Mapping[str, Analysis]


def headline(found: Analyses) -> str:
    """What K* gains over K = 1, and the share of the gain that some K have, a row a data set and metric."""
    rows = []
    for name, one in found.items():
        for metric in ("auc", one.top_n):
            gain = one.difference(str(one.k_star), "1", metric)
            ruled = k_for_metric(one.top_n, round(one.candidates))
            ks = (one.k_star, 100, 300, ruled)
            shares = [percent(one.share_at(min(k, one.fixed[-1]), metric)) for k in ks]
            level = f"{one.measured[metric]['1'].mean:.3f}".removeprefix("0")
            rows.append([f"{name}, {metric_name(metric)}", level, str(one.k_star), brief(gain), *shares])
    return table(["data, metric", "K = 1", "K\\*", "K\\* less K = 1", "K\\*", "100", "300", "`metric`"], rows)


def primary(found: Analyses) -> str:
    """The six contrasts, with Holm's correction over those that are there."""
    contrasts = six(found)
    corrected = holm([difference.p for *_, difference in contrasts])
    rows = [
        [task, what, signed(each.mean), span(each.interval), f"{each.contrast.df:.1f}", small(each.p), small(p)]
        for (task, what, each), p in zip(contrasts, corrected, strict=True)
    ]
    return table(["task", "contrast", "test AUC", "95%", "degrees of freedom", "p", "p, Holm"], rows)


def six(found: Analyses) -> list[tuple[str, str, Measured]]:
    """K* against K = 1 and ANS against fixed K*, in each task that has them."""
    return [
        (one.name, what, one.difference(rule, other))
        for one in found.values()
        for what, rule, other in (
            (f"K\\* = {one.k_star} against K = 1", str(one.k_star), "1"),
            (f"ANS to {one.k_star} against fixed {one.k_star}", f"ans:{one.k_star}", str(one.k_star)),
        )
        if rule != other and rule in one.whole
    ]


def fresh_seeds(found: Sequence[tuple[Analysis, Analysis]]) -> str:
    """The primary contrasts in the first record, in the seeds that it has not, and in all seeds of the larger one."""
    rows = []
    for own, more in found:
        new = [seed for seed in more.record["seeds"] if seed not in own.record["seeds"]]
        for metric in ("auc", own.top_n):
            each = [("first", own), *([("new seeds", more.only(new))] if len(new) > 1 else []), ("all seeds", more)]
            for what, one in each:
                star = str(one.k_star)
                cells = [
                    with_interval(one.difference(rule, other, metric)) if rule in one.whole else ""
                    for rule, other in ((star, "1"), (f"ans:{star}", star))
                ]
                seeds = f"{what}, {len(one.record['seeds'])}"
                rows.append([own.name, metric_name(metric), seeds, star, *cells])
    return table(["data", "metric", "seeds", "K\\*", "K\\* less K = 1", "ANS less K\\*"], rows)


def sweep(one: Analysis) -> str:
    """Every K held throughout: levels, and differences to K = 1."""
    rows = []
    for arm in one.record["arms"]:
        rule = arm["rule"]
        if int(arm["k"]) not in one.fixed or arm["role"] != "fixed":
            continue
        cells = [f"{arm['seeds'][0]['learning_rate']:g}", f"{np.mean([run['val']['auc'] for run in arm['seeds']]):.4f}"]
        for metric in ("auc", one.top_n):
            gain = with_interval(one.difference(rule, "1", metric)) if rule != "1" else ""
            cells += [f"{one.measured[metric][rule].mean:.4f}", gain]
        rows.append([f"**{rule}**" if rule == str(one.k_star) else rule, *cells])
    top = metric_name(one.top_n)
    return table(["K", "rate", "validation AUC", "test AUC", "less K = 1", f"test {top}", "less K = 1"], rows)


def worth(found: Analyses) -> str:
    """What K* gains, what it loses to the K that is best by that metric on validation, and 100 in its place."""
    rows = []
    for one in found.values():
        if one.k_star not in one.fixed:
            continue
        star = str(one.k_star)
        for metric in ("auc", one.top_n):
            best = one.best(metric)
            gain = "" if star == "1" else with_interval(one.difference(star, "1", metric))
            regret = "the same K" if best == one.k_star else with_interval(one.regret(one.k_star, metric))
            hundred = with_interval(one.difference("100", star, metric)) if 100 in one.fixed and star != "100" else ""
            rows.append([one.name, metric_name(metric), star, str(best), gain, regret, hundred])
    head = ["record", "metric", "K\\*", "best K", "K\\* less K = 1", "best K less K\\*", "100 less K\\*"]
    return table(head, rows)


def estimates(found: Analyses) -> str:
    rows = []
    for one in found.values():
        best = one.record["estimate"]
        others = sorted(each["k_int"] for each in one.record["estimates"].values())
        rows.append(
            [
                one.name,
                f"{float(auc(best['label_separation'])):.3f}",
                f"{best['k']:.1f}",
                "..".join("open" if end is None else str(end) for end in best["flat"]),
                "none" if best["interval"] is None else "{:.1f}..{:.1f}".format(*best["interval"]),
                f"{others[0]}..{others[-1]}",
                best["verdict"],
                best["basis"],
            ]
        )
    head = ["record", "training AUC", "K\\*", "as good", "90% interval", "K\\* of each seed", "verdict", "basis"]
    return table(head, rows)


def schedules(found: Analyses) -> str:
    """ANS and WarmK up to K* and up to the validation-best K, less that K held."""
    rows = []
    for one in found.values():
        for peak in dict.fromkeys((one.k_star, one.k_best)):
            for kind, title in (("ans", "ANS"), ("warm", "WarmK")):
                if f"{kind}:{peak}" in one.whole:
                    pair = f"{kind}:{peak}", str(peak)
                    cells = [with_interval(one.difference(*pair, metric)) for metric in ("auc", one.top_n)]
                    rows.append([one.name, f"{title} to {peak}", *cells, metric_name(one.top_n)])
    return table(["record", "schedule", "AUC, less the same K held", "top n, less it", "top n is"], rows)


def lambdas(found: Analyses) -> str:
    """K* at other lambda, and its regret on test AUC."""
    rows = []
    for lam in LAMS:
        ks = {name: one.k_at(lam) for name, one in found.items()}
        regrets = [one.regret(ks[name]).mean for name, one in found.items()]
        cells = [f"{ks[name]:.1f}: {bare(regret, 4)}" for name, regret in zip(found, regrets, strict=True)]
        rows.append([f"{lam:g}", *cells, bare(float(np.mean(regrets)), 4)])
    return table(["lambda", *(f"{name}: K, regret" for name in found), "mean regret"], rows)


def fits(found: Analyses) -> str:
    """mu (1 - e^(-t/tau)) through the pilot, and the scores of its model beside the Gaussians."""
    rows = []
    for one in found.values():
        seen = one.record["scores"]
        cells = [f"{one.fit.mu:.2f}", f"{one.fit.tau:.0f}", f"{one.fit.rms:.2f}", f"{one.fit.k:.1f}"]
        scores = [f"{seen[name]:.2f}" for name in ("positive_std", "positive_skew", "negative_skew")]
        rows.append([one.name, *cells, f"{one.record['estimate']['k']:.1f}", *scores])
    head = ["task", "mu", "tau, steps", "residual, rms", "K\\* from the fit", "from the curve"]
    return table([*head, "sd of positives (1)", "their skew (0)", "skew of negatives (0)"], rows)


def tuning(found: Analyses) -> str:
    rows = []
    for one in found.values():
        for k, choice in one.record["tuning"].items():
            if choice is None or len(choice["tried"]) < 2:  # not settled yet, or nothing to choose from
                continue
            cells = [_told(row["val_auc"], row["learning_rate"] == choice["learning_rate"]) for row in choice["tried"]]
            rows.append([one.name, k, *cells])
    return table(["record", "K", "base / 3", "base", "3 x base"], rows)


def _told(auc: float | None, kept: bool) -> str:
    text = "failed" if auc is None else f"{auc:.4f}"
    return f"**{text}**" if kept else text


def chosen_at_edge(found: Analyses) -> tuple[int, int]:
    """Of how many tuned K the chosen rate lies at the edge of the grid, and of how many there are."""
    at_edge = total = 0
    for one in found.values():
        for choice in one.record["tuning"].values():
            if choice is None or len(choice["tried"]) < 2:
                continue
            rates = [row["learning_rate"] for row in choice["tried"]]
            total += 1
            at_edge += choice["learning_rate"] in (min(rates), max(rates))
    return at_edge, total


def ended_at_best(one: Analysis) -> tuple[int, int]:
    """Of how many runs the last evaluation was the best, and how many there are."""
    runs = [run for arm in one.record["arms"] for run in arm["seeds"]]
    return sum(run["best_step"] == run["curve"]["val"]["step"][-1] for run in runs), len(runs)


def paces(found: Analyses) -> str:
    """Milliseconds of a step at each K that was timed alone on the machine."""
    rows = []
    for one in found.values():
        ms = {int(k): value for k, value in one.record["pace"]["ms"].items()}
        told = ", ".join(f"{k:,}: {ms[k]:.1f}" for k in sorted(ms))
        rows.append([one.name, told, one.record["pace"]["machine"]["name"]])
    return table(["record", "K: milliseconds of a step", "machine"], rows)


def provenance(found: Analyses) -> str:
    rows = []
    for one in found.values():
        record = one.record
        runs = sum(len(arm["seeds"]) for arm in record["arms"])
        last, total = ended_at_best(one)
        rows.append(
            [
                one.name,
                f"{record['steps']:,} of {record['settings']['batch_size']}",
                str(len(record["seeds"])),
                str(runs),
                f"{last} of {total}",
                f"`{record['data']['digest'][:8]}`",
                f"`{record['code']['source'][:8]}`",
            ]
        )
    return table(["record", "steps", "seeds", "runs", "best at the last step", "data", "code"], rows)

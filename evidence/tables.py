"""The tables of the evidence as Markdown, from records alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from evidence.analysis import CONSTANTS, LAMS, Analysis, best_constant
from evidence.bootstrap import holm
from evidence.markdown import signed, small, span, table, with_error, with_interval
from negwise import auc
from negwise.report import metric_name

Analyses = Mapping[str, Analysis]


def provenance(found: Analyses) -> str:
    rows = []
    for one in found.values():
        record = one.record
        runs = sum(len(arm["seeds"]) for arm in record["arms"])
        tried = sum(max(len(choice["tried"]) - 1, 0) for choice in record["tuning"].values() if choice)
        shape = record["settings"]
        rows.append(
            [
                one.name,
                f"{record['steps']:,} of {shape['batch_size']}",
                f"{runs} + {tried} for tuning",
                str(len(record["seeds"])),
                f"{record['machine']['name']}, torch {record['versions']['torch']}",
                f"`{record['data']['digest'][:12]}`",
                f"`{record['code']['source']}`",
            ]
        )
    return table(["task", "steps", "runs", "seeds", "machine", "data", "code"], rows)


def primary(found: Analyses) -> str:
    """The six contrasts, with Holm's correction over those that are there."""
    contrasts = [
        (one.name, what, one.difference(rule, other))
        for one in found.values()
        for what, rule, other in (
            (f"K* = {one.k_star} against K = 1", str(one.k_star), "1"),
            (f"ANS to {one.k_star} against fixed {one.k_star}", f"ans:{one.k_star}", str(one.k_star)),
        )
        if rule != other and rule in one.whole
    ]
    corrected = holm([difference.p for *_, difference in contrasts])
    rows = [
        [task, what, signed(each.mean), span(each.interval), span(each.student), small(each.p), small(p)]
        for (task, what, each), p in zip(contrasts, corrected, strict=True)
    ]
    head = ["task", "contrast", "test AUC", "95%, bootstrap", "95%, t over seeds", "p", "p, Holm"]
    return table(head, rows)


def endpoints(found: Analyses) -> str:
    rows = []
    for one in found.values():
        for metric in ("auc", one.top_n):
            at = {k: one.measured[metric][str(k)].mean for k in (1, one.k_star, one.k_best)}
            captured = one.captured(metric)
            rows.append(
                [
                    one.name,
                    metric_name(metric),
                    f"{at[1]:.4f}",
                    f"{at[one.k_star]:.4f} ({one.k_star})",
                    f"{at[one.k_best]:.4f} ({one.k_best})",
                    with_interval(one.difference(str(one.k_star), "1", metric)),
                    with_interval(one.regret(one.k_star, metric)),
                    "gain unclear"
                    if captured is None
                    else f"{captured[0]:.2f} ({captured[1][0]:.2f}..{captured[1][1]:.2f})",
                ]
            )
    head = ["task", "metric", "K = 1", "K*", "validation-best K", "gain of K*", "regret of K*", "captured gain"]
    return table(head, rows)


def sweep(one: Analysis) -> str:
    rows = []
    for arm in one.record["arms"]:
        if arm["rule"] not in one.whole or arm["role"] == "turning":
            continue
        runs = arm["seeds"]
        shown = [run["recommended"] for run in runs if run["recommended"]]
        popular = [each["popularity"] for each in shown if each["popularity"] is not None]
        name = f"**{arm['rule']}**" if arm["rule"] == str(one.k_star) else arm["rule"]
        rows.append(
            [
                name,
                f"{runs[0]['learning_rate']:g}",
                f"{np.mean([run['val']['auc'] for run in runs]):.4f}",
                *(with_error(one.measured[metric][arm["rule"]]) for metric in ("auc", one.top_n)),
                f"{np.mean([each['coverage'] for each in shown]):.3f}",
                f"{np.mean(popular):.1f}" if popular else "",
            ]
        )
    top = metric_name(one.top_n)
    return table(["K", "rate", "validation AUC", "test AUC", f"test {top}", "coverage", "popularity"], rows)


def schedules(found: Analyses) -> str:
    rows = []
    for one in found.values():
        for peak in dict.fromkeys((one.k_star, one.k_best)):
            for kind in ("ans", "warm"):
                rule = f"{kind}:{peak}"
                if rule in one.whole:
                    differences = [one.difference(rule, str(peak), metric) for metric in ("auc", one.top_n)]
                    where = "K*" if peak == one.k_star else "best"
                    rows.append(
                        [
                            one.name,
                            f"{rule} ({where})",
                            *(with_interval(each) for each in differences),
                            metric_name(one.top_n),
                        ]
                    )
    return table(["task", "schedule", "test AUC, less fixed", "top n, less fixed", "top n is"], rows)


def predictors(found: Analyses) -> str:
    """Regret on test AUC of every way to choose K."""
    names = list(found)
    rules: list[tuple[str, Callable[[Analysis], float]]] = [
        ("K* of the pilot", lambda one: one.k_star),
        ("K = 1", lambda _: 1),
        *((f"always {k}", lambda _, k=k: k) for k in CONSTANTS),
    ]
    if len(found) > 1:
        others = {name: [found[other] for other in names if other != name] for name in names}
        rules.append(("best constant of the other tasks", lambda one: best_constant(others[one.name])))
    rows = []
    for name, predict in rules:
        ks = [predict(one) for one in found.values()]
        regrets = [one.regret(k) for one, k in zip(found.values(), ks, strict=True)]
        cells = [
            f"{with_interval(each)}, K {one.nearest(k)}"
            for one, each, k in zip(found.values(), regrets, ks, strict=True)
        ]
        rows.append([name, *cells, signed(float(np.mean([each.mean for each in regrets])))])
    return table(["predictor", *names, "mean"], rows)


def lambdas(found: Analyses) -> str:
    rows = []
    for lam in LAMS:
        ks = {name: one.k_at(lam) for name, one in found.items()}
        regrets = [one.regret(ks[name]).mean for name, one in found.items()]
        cells = [f"{ks[name]:.1f}: {signed(regret)}" for name, regret in zip(found, regrets, strict=True)]
        rows.append([f"{lam:g}", *cells, signed(float(np.mean(regrets)))])
    return table(["lambda", *(f"{name}: K, regret" for name in found), "mean regret"], rows)


def fits(found: Analyses) -> str:
    rows = [
        [
            one.name,
            f"{one.fit.mu:.3f}",
            f"{one.fit.tau:.0f}",
            f"{one.fit.rms:.3f}",
            f"{one.fit.largest:.3f}",
            f"{one.fit.k:.1f}",
            f"{one.record['estimate']['k']:.1f}",
        ]
        for one in found.values()
    ]
    head = ["task", "mu", "tau, steps", "residual, rms", "largest residual", "K* from the fit", "K* from the curve"]
    return table(head, rows)


def estimates(found: Analyses) -> str:
    rows = []
    for one in found.values():
        best = one.record["estimate"]
        others = sorted(each["k_int"] for each in one.record["estimates"].values())
        rows.append(
            [
                one.name,
                f"{best['label_separation']:.2f} ({float(auc(best['label_separation'])):.3f})",
                f"{best['k']:.1f}",
                "..".join("open" if end is None else str(end) for end in best["flat"]),
                "none" if best["interval"] is None else "{:.1f}..{:.1f}".format(*best["interval"]),
                f"{others[0]}..{others[-1]}",
                best["verdict"],
                best["basis"],
            ]
        )
    head = ["task", "mu (AUC)", "K*", "as good", "90% interval", "K* of each seed", "verdict", "basis"]
    return table(head, rows)


def tuning(found: Analyses) -> str:
    rows = []
    for one in found.values():
        for k, choice in one.record["tuning"].items():
            if choice is None:  # not settled yet
                continue
            cells = [_told(row["val_auc"], row["learning_rate"] == choice["learning_rate"]) for row in choice["tried"]]
            rows.append([one.name, k, *cells])
    return table(["task", "K", "base / 3", "base", "3 x base"], rows)


def _told(auc: float | None, kept: bool) -> str:
    text = "failed" if auc is None else f"{auc:.4f}"
    return f"**{text}**" if kept else text


def gaussians(found: Analyses) -> str:
    rows = []
    for one in found.values():
        seen = one.record["scores"]
        rows.append(
            [
                one.name,
                f"{seen['positive_mean']:.2f}",
                f"{seen['positive_std']:.2f}",
                f"{seen['positive_skew']:.2f}",
                f"{seen['negative_skew']:.2f}",
            ]
        )
    head = ["task", "mean of positives", "their standard deviation (1)", "their skew (0)", "skew of negatives (0)"]
    return table(head, rows)


def all_tables(found: Analyses, swept: Analyses, every: Analyses) -> dict[str, str]:
    """Every table by its name: of the primary tasks ``found``, of all that were ``swept``, and of ``every`` record."""
    return {
        "provenance": provenance(every),
        "primary": primary(found),
        "endpoints": endpoints(found),
        "schedules": schedules(found),
        "predictors": predictors(found),
        "estimates": estimates(found),
        "lambdas": lambdas(swept),
        "fits": fits(swept),
        "tuning": tuning(swept),
        "gaussians": gaussians(swept),
        **{f"sweep-{name}": sweep(one) for name, one in swept.items()},
    }

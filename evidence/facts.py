"""Single numbers of the prose, by name: between ``<!-- fact NAME -->`` and ``<!-- end -->`` on a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evidence import claims
from evidence.analysis import Analysis
from evidence.gain import fit_records
from evidence.markdown import bare, brief, percent, small
from evidence.quality import holm
from evidence.rules import RULES, mean_lost, nearly_fit, wanted
from evidence.tables import chosen_at_edge, ended_at_best, six
from evidence.variants import k_after, pooled

Analyses = Mapping[str, Analysis]
METRIC_RULE = "at least 64, else M / n_w (`metric`)"


def facts(tasks: Analyses, largest: Analyses, every: Analyses) -> dict[str, str]:
    """Every number that the prose may use; the records have to be those of the whole study."""
    items, matching = largest["items"], largest["matching"]
    long, catalogues = every["items-long"], [largest[name] for name in ("items", "matching", "docs")]
    found = {**_primary(tasks), **_fresh(tasks, largest), **_rules(list(largest.values())), **_sizes(every)}
    hundred = pooled([tasks["matching"], matching], "hit@5")
    scale, power, together = nearly_fit([*catalogues, long])
    edge, tuned = chosen_at_edge(
        {name: one for name, one in every.items() if one.name == one.of or one.variant == "model"}
    )
    fitted = fit_records(items.folder)
    tops = [value for name, value in fitted.items() if name.startswith("top n")]
    found |= {
        "pooled-hundred": brief(hundred, 4),
        "nearly-scale": f"{scale:.0f}",
        "nearly-power": f"{power:.2f}".removeprefix("0"),
        "nearly-r": f"{together:.2f}".removeprefix("0"),
        "edge": f"{edge} of {tuned}",
        "error-auc": percent(fitted["AUC, error on all"]),
        "error-top": percent(float(np.sqrt(np.mean(np.square(tops))))),
        "short-20-auc": brief(items.difference("20", "1")),
        "long-20-auc": brief(long.difference("20", "1")),
        "ten-regret-top": bare(matching.regret(matching.k_star, "hit@5").mean, 4),
        "ten-regret-auc-best": bare(matching.difference(str(matching.k_best), str(matching.k_star), "hit@5").mean, 4),
        "old-items-level": f"{items.measured[items.top_n]['1000'].mean:.3f}".removeprefix("0"),
        "long-items-level": f"{long.measured[long.top_n]['1000'].mean:.3f}".removeprefix("0"),
        "length-items": _lengths([(items, 1 / 3), (items, 0.5), (items, 1.0), (long, 1.0)]),
        "formula-k180": f"{claims.k_at(0.998):,.0f}",
        "formula-k4": f"{claims.k_at(0.75):.1f}",
        "formula-k20": f"{claims.k_at(0.95):.1f}",
        "stage-start": f"{claims.stage(0.0):.0f}",
        "stage-half": f"{claims.stage(1.2):.0f}",
    }
    return found


def _primary(tasks: Analyses) -> dict[str, str]:
    """The six contrasts and Holm's p."""
    each = six(tasks)
    found: dict[str, str] = {}
    for (task, what, one), p in zip(each, holm([one.p for *_, one in each]), strict=True):
        name = f"{'ans' if what.startswith('ANS') else 'gain'}-{task}"
        found |= {name: brief(one), f"{name}-p": small(p).lstrip("0"), f"{name}-p-alone": f"{one.p:.2f}"[1:]}
    return found


def _fresh(tasks: Analyses, largest: Analyses) -> dict[str, str]:
    """K* less K = 1 in the seeds that the first round had not."""
    found = {}
    for name, own in tasks.items():
        more = largest[name]
        new = more.only([seed for seed in more.record["seeds"] if seed not in own.record["seeds"]])
        found[f"new-{name}"] = brief(new.difference(str(more.k_star), "1"))
    return found


def _rules(found: Sequence[Analysis]) -> dict[str, str]:
    """Shares lost, means over data sets: AUC and top n."""
    short = {"K* of the pilot": "star", "always 100": "hundred", "always 300": "three", "M / n_w": "plain"}
    short |= {METRIC_RULE: "metric", "as many as there are": "most"}
    lost = {
        f"lost-{name}-{'top' if top else 'auc'}": percent(mean_lost(found, rule, top))
        for rule, name in short.items()
        for top in (False, True)
    }
    without = [one for one in found if one.of != "news"]
    lost |= {f"lost-{name}-auc-texts": percent(mean_lost(without, rule, False)) for rule, name in short.items()}
    assert set(short) <= set(RULES)
    return lost


def _sizes(every: Analyses) -> dict[str, str]:
    """How many items runs ended at their best, and other counts."""
    runs = [ended_at_best(one) for one in every.values() if one.of == "items"]
    news = every["news-ten"]
    return {
        "last-best": f"{sum(last for last, _ in runs)} of {sum(many for _, many in runs)}",
        "records": str(len(every)),
        "n-w-news": f"{wanted(news):.0f}",
    }


def _lengths(found: Sequence[tuple[Analysis, float]]) -> str:
    """Median K* after these shares of the pilots."""
    told = []
    for one, part in found:
        ks = [k for k in (k_after(one, seed, part) for seed in one.record["seeds"]) if k is not None]
        told.append(f"{np.median(ks):.0f}")
    return ", ".join(told)

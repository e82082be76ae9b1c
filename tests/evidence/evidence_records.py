"""Records of tasks made up, with known standings, and what reads tables back."""

import re

import numpy as np
import pytest
from scipy import stats

from evidence.analysis import load_analysis
from evidence.record import write
from negwise import metrics

QUERIES, SIZE = 80, 101
PACE = {"ms": {"1": 2.0, "5": 3.0, "100": 8.0}, "machine": {"name": "here"}}


def make(
    folder,
    name="items",
    *,
    of=None,
    variant="",
    model="bert4rec",
    steps=24,
    arms=None,
    k_star=5,
    seeds=3,
    places=None,
    **more,
):
    """A record and its standings: one positive a query, each arm with places of its own, validation curves of three.

    ``places`` by rule, where the answer is to be known: how many candidates beat the positive, about.
    """
    rules = arms or ("1", "5", "100", "ans:5", "warm:5")
    dice = np.random.default_rng(sum(map(ord, name)))
    record_arms, ranks = [], {}
    for at, rule in enumerate(rules):
        runs = []
        for seed in range(seeds):
            above = np.minimum(dice.integers(0, SIZE, QUERIES), dice.integers(0, SIZE, QUERIES) + 3 * at)
            if places is not None:
                above = places[rule] + dice.integers(-1, 2, QUERIES)
            ones = np.ones_like(above)
            told = metrics.evaluate(metrics.Ranks(above, ones, ones, np.full_like(above, SIZE))).record()
            ranks |= {f"above/{rule}/{seed}": above, f"positives/{seed}": ones, f"sizes/{seed}": ones * SIZE}
            curve = {name: sorted(dice.random(3)) for name in ("auc", "ndcg@10")}
            scores = {"auc": told["auc"], "ndcg@10": told["metrics"]["ndcg@10"]}
            runs.append(
                {
                    "seed": seed,
                    "learning_rate": 0.001,
                    "test": scores,
                    "val": scores,
                    "recommended": None,
                    "curve": {"val": {"step": [0, steps // 2, steps], **curve}},
                }
            )
        role = "fixed" if rule.isdigit() else "turning" if rule.count(":") == 2 else "schedule"
        peak = float(rule.split(":")[1] if ":" in rule else rule)
        record_arms.append({"rule": rule, "k": peak, "role": role, "seeds": runs})
    record = {
        "task": name,
        "of": of or name,
        "variant": variant,
        "title": "Items",
        "data": {"name": "x", "digest": "same"},
        "settings": {"model": model, "folds": None, "batch_size": 8},
        "steps": steps,
        "seeds": list(range(seeds)),
        "ks": [1, 100],
        "top_n": "ndcg@10",
        "k_star": k_star,
        "k_best": 100,
        "arms": record_arms,
        **more,
    }
    write(record, ranks, folder)
    return load_analysis(folder, name)


def scores_of(analysis, rule, metric="auc"):
    arm = next(arm for arm in analysis.record["arms"] if arm["rule"] == rule)
    return np.array([run["test"][metric] for run in arm["seeds"]])


def says(cell, *values):
    """The numbers of a cell, to its four digits: half a digit either way, and a little for ties."""
    told = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", cell)]
    assert told == pytest.approx([float(value) for value in values], abs=5.1e-5), cell
    return True


def student(values):
    return values.mean(), *stats.t.interval(0.95, len(values) - 1, loc=values.mean(), scale=stats.sem(values))


def rows_of(text):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]

"""Runs of the second study made up, with known ranks and curves, for every cell that a test asks for."""

from dataclasses import asdict

import numpy as np

from evidence.second_cells import BLOCKS, cells_in_order
from negwise import auc
from negwise.metrics import Ranks

QUERIES = 40
LARGER = {"wide": 1001, "packages": 301, "simulated-1000": 201}
"""Candidates of some tasks; of the others 101."""
TOP = {"items": "ndcg@10", "news": "ndcg@10", "naml": "ndcg@10", "lstur": "ndcg@10", "histories": "ndcg@10"}


def curve(steps, separation, metric, values, *, pairs=10**6, se=1e-4):
    """A run's curve that rises from 0 to ``separation`` as 1 - e^-t does up to t = 3."""
    times = np.linspace(0, 3, 26)
    aucs = auc(separation * (1 - np.exp(-times)) / (1 - np.exp(-3)))
    columns = {"step": (np.linspace(0, steps, 26)).tolist(), "auc": aucs.tolist(), "auc_se": [se] * 26}
    return {**columns, "pairs": [pairs] * 26, metric: list(values)}


def run_of(cell, above, *, size=101, best=None, val=None, separation=2.0, k=None, spread=False, **more):
    """A run whose every positive has about ``above`` of ``size`` candidates above; ``spread``: 0 to twice that."""
    metric = TOP.get(cell.task, "ndcg@10" if cell.task.startswith("simulated") else "hit@5")
    ones = np.ones(QUERIES, int)
    jitter = np.random.default_rng([cell.seed, len(cell.k)]).integers(-1, 2, QUERIES)
    places = np.linspace(0, 2 * above, QUERIES).astype(int) if spread else above
    values = np.linspace(0, 0.5, 26) if val is None else val
    curves = {"val": curve(cell.steps, 0.9 * separation, metric, values)}
    if cell.k == "1":
        curves["train"] = curve(cell.steps, separation, metric, values)
    last = k or (float(cell.k) if cell.k.isdecimal() else 50.0)
    return {
        **asdict(cell), "metric": metric, "rate": 1e-3, "seconds": 10.0 * cell.steps, "digest": cell.task, "code": "x",
        "best": cell.steps if best is None else best, "candidates": float(size), "test": {metric: 0.5, "auc": 0.5},
        "curves": curves, "path": {"step": [cell.steps], "k": [last]},
        "ranks": Ranks(np.clip(places + jitter, 0, size - 1), ones, ones, size * ones), **more,
    }  # fmt: skip


def whole_study(above=lambda _: 30, **more):
    """Every run of the plan; ``above`` of a cell, and what else is said of it."""
    return [
        run_of(cell, above(cell), size=LARGER.get(cell.task, 101), **more) for cell in cells_in_order(BLOCKS)
    ]  # fmt: skip

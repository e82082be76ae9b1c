"""The framework as an interactive page: sliders for AUC, lambda and K, and the best K that follows.

The page computes eq. 5 and 6 and their mean over training. It does not integrate P(mu, K): `reliability_table` computes
that here, and the page interpolates.
"""

from __future__ import annotations

import base64
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import log_ndtr

import negwise
from negwise.files import write_atomically
from negwise.report.page import render_template
from negwise.schedule.online_k import AUC_RELIABILITY, TOP_N_RELIABILITY
from negwise.theory.gain import AUC_ERROR, LEAST_CANDIDATES, TOP_N_ERROR, TOP_N_POWER, TOP_N_SCALE
from negwise.theory.horizon import HORIZON, RAMP_END, WELL_ABOVE_CHANCE
from negwise.theory.metric_k import INFORMATION, discount_area
from negwise.theory.optimum import FLAT, k_grid
from negwise.theory.pilot_summary import SIMULATED_END
from negwise.theory.reliability import reliability
from negwise.theory.separation import SQRT2, Floats, auc, separation
from negwise.theory.verdict import LEAST_MARGIN

# With interpolation by polynomials of six points, K* is within 0.1% and v within 1e-6, in 78 kB of text.
LOWEST, HIGHEST, STEP = -2.0, 8.0, 0.1
PER_DECADE, MAX_K = 24, 1e6
TOP_METRIC = "ndcg@10"
"""The metric of the top of a list that the page shows beside AUC."""


def write_explore(out: Path) -> Path:
    """Write the page to the file ``out``, and make its folder."""
    return write_atomically(out, explore_page())


def explore_page() -> str:
    """The page as HTML. It needs no other file and no network."""
    presets = _presets()
    rules = {
        "least_margin": LEAST_MARGIN,
        "flat": FLAT,
        "horizon": HORIZON,
        "well_above_chance": WELL_ABOVE_CHANCE,
        "ramp_end": RAMP_END,
        "online": {"auc": AUC_RELIABILITY, "top": TOP_N_RELIABILITY},
        "top": {
            "scale": TOP_N_SCALE,
            "power": TOP_N_POWER,
            "area": discount_area(TOP_METRIC, LEAST_CANDIDATES),
            "information": INFORMATION,
            "least": LEAST_CANDIDATES,
        },
    }
    return render_template(
        "explore.html",
        charts=False,
        version=negwise.__version__,
        presets=presets,
        rules=rules,
        errors={"auc": AUC_ERROR, "top": TOP_N_ERROR},
        data={**reliability_table(), "rules": rules, "presets": presets},
    )


def reliability_grid() -> tuple[Floats, Floats]:
    """The separations and the K of the table, evenly spaced in mu and in log K."""
    count = round((HIGHEST - LOWEST) / STEP) + 1
    return LOWEST + STEP * np.arange(count, dtype=np.float64), k_grid(MAX_K, PER_DECADE)


def reliability_table() -> dict[str, Any]:
    """P(mu, K) on the grid, one row per separation, as base64 of little-endian float32.

    ``log_odds`` are those of the AUC at each separation: near 1 they interpolate better than the AUC.
    """
    separations, ks = reliability_grid()
    values = reliability(separations[:, None], ks).astype("<f4")
    z = separations / SQRT2
    return {
        "separations": {"first": LOWEST, "step": STEP, "count": separations.size},
        "ks": {"per_decade": PER_DECADE, "count": ks.size},
        "reliability": base64.b64encode(values.tobytes()).decode("ascii"),
        "log_odds": (log_ndtr(z) - log_ndtr(-z)).tolist(),
    }


def _presets() -> list[dict[str, Any]]:
    """Training AUCs like those of the paper's three tasks, each with the AUC at the end of its simulated training, and
    the example curve of `negwise.curves`."""
    tasks = [(0.75, "news clicks"), (0.95, "film ratings"), (0.998, "titles and texts")]
    return [{"name": f"AUC {train:g}, {task}", "train": train, "val": _end(train)} for train, task in tasks] + [
        {"name": "a real training curve", "text": _example()}
    ]


def _end(train: float) -> float:
    return round(float(auc(SIMULATED_END * separation(train))), 4)


def _example() -> str:
    return (files("negwise.curves") / "example.csv").read_text()

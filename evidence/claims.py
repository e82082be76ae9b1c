"""What the paper's formula gives at the numbers that the paper prints."""

from __future__ import annotations

import numpy as np

from evidence.markdown import table
from negwise import auc, effectiveness, optimal_k, separation

PRINTED = ((0.75, 1.0, 4), (0.95, 2.4, 20), (0.998, 4.5, 180))
"""Training AUC, the separation mu and the K that the paper names together."""


def formula() -> str:
    """K* on the paper's simulated curve, at the AUC and at the separation that it prints."""
    rows = []
    for printed, mu, k in PRINTED:
        at_auc, at_mu = k_at(printed), k_at(float(auc(mu)))
        exact = float(separation(printed))
        rows.append([f"{printed:g}", f"{exact:.2f}", f"{at_auc:,.1f}", f"{mu:g}", f"{at_mu:,.1f}", str(k)])
    head = ["the paper's AUC", "is mu", "which gives", "the paper's mu", "gives", "the paper's K"]
    return table(head, rows)


def k_at(train_auc: float) -> float:
    """K* of a ramp up to the labels' own AUC."""
    return optimal_k(train_auc=train_auc).k


def stage(model: float) -> float:
    """The best K of one moment for labels with separation 2.4 and a model with this one."""
    ks = np.geomspace(1, 1e3, 6001)  # each a thousandth above the last
    return float(ks[np.argmax(effectiveness(2.4, model, ks))])

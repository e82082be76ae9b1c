"""What the worlds with known truth say: predicted against measured best K, one assumption at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.quality import Floats
from negwise import auc, reliability, separation
from negwise.theory import mean_effectiveness

LAMS = (0.8, 0.85, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Truth:
    """One world. ``k_gaussian``, ``k_ranks`` and ``k_joint`` maximise v with ever fewer assumptions, the labels known:

    Gaussian and independent; independent, with P(A) and P(B) as they are; P(A and B) as it is, too.
    """

    name: str
    label_auc: float
    read_auc: float
    k_star: int
    verdict: str
    k_best: int
    seeds: dict[int, Floats]  # test AUC of each seed, (S,), by K
    top: dict[int, Floats]  # the same of the top-n metric
    k_gaussian: int
    k_ranks: int
    k_joint: int
    gaussian_error: float
    joint_error: float
    k_by_lam: dict[str, float]

    @property
    def tests(self) -> dict[int, float]:
        return {k: float(aucs.mean()) for k, aucs in self.seeds.items()}

    @property
    def errors(self) -> dict[int, float]:
        return {k: float(aucs.std(ddof=1) / np.sqrt(len(aucs))) for k, aucs in self.seeds.items()}

    @property
    def gain(self) -> Floats:
        """Test AUC at K* less that at K = 1, by seed, (S,)."""
        return self.seeds[self.k_star] - self.seeds[1]

    @property
    def gain_top(self) -> Floats:
        """The same of the top-n metric."""
        return self.top[self.k_star] - self.top[1]

    @property
    def regret(self) -> Floats:
        """Test AUC at the validation-best K less that at K*, by seed, (S,)."""
        return self.seeds[self.k_best] - self.seeds[self.k_star]


def truths(record: Mapping[str, Any]) -> list[Truth]:
    return [_truth(world) for world in record["worlds"]]


def _truth(world: Mapping[str, Any]) -> Truth:
    seen, estimate = world["truth"], world["estimate"]
    ks = np.array(seen["ks"], float)
    p_a, p_b, p_ab = (np.array(seen[name]) for name in ("p_a", "p_b", "p_ab"))
    weight = _weights(np.array(seen["steps"], float), float(estimate["horizon"]))
    label = float(separation(np.array(seen["auc_a"])))
    models = separation(np.array(seen["auc_b"]))
    g_a, g_b = reliability(label, ks), reliability(models[:, None], ks)  # (K,), (T, K)
    lam = 0.9

    def best(v: Floats) -> int:
        return int(seen["ks"][int(np.argmax(v))])

    joint = lam * (p_a - weight @ p_b) + (1 - lam) * (1 - p_a - weight @ p_b + 2 * (weight @ p_ab))
    return Truth(
        name=f"{world['world']['shape']}, {world['world']['noise']:g}",
        label_auc=world["label_auc"],
        read_auc=float(auc(estimate["label_separation"])),
        k_star=world["k_star"],
        verdict=estimate["verdict"],
        k_best=world["k_best"],
        seeds={arm["k"]: np.array(arm["test"]) for arm in world["arms"]},
        top={arm["k"]: np.array(arm["test_top"]) for arm in world["arms"]},
        k_gaussian=best(mean_effectiveness(g_a, weight @ g_b, lam)),
        k_ranks=best(mean_effectiveness(p_a, weight @ p_b, lam)),
        k_joint=best(joint),
        gaussian_error=float(max(np.abs(g_a - p_a).max(), np.abs(g_b - p_b).max())),
        joint_error=float(np.abs(p_ab - p_a * p_b).max()),
        k_by_lam=estimate["k_by_lam"],
    )


def _weights(steps: Floats, until: float) -> Floats:
    """Trapezoid weights, (T,), of the evaluations up to the step ``until``; they add up to 1."""
    inside = steps <= until
    inside[:2] = True
    here = steps[inside]
    gaps = np.diff(here)
    weight = np.zeros(len(steps))
    weight[np.flatnonzero(inside)[:-1]] += gaps / 2
    weight[np.flatnonzero(inside)[1:]] += gaps / 2
    return weight / weight.sum()

"""What the runs with K = 1 say as pilots: K* at every length, and under wrong labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from negwise import NegwiseError, reliability, separation
from negwise.jobs import bounded_auc, estimate_from_log
from negwise.records import EvalRecord, RunLog
from negwise.theory import mean_effectiveness

Run = Mapping[str, Any]
LAM = 0.9
HORIZON = 0.95
"""A curve counts up to its first evaluation with this share of its best separation, as in `negwise.optimal_k`."""


@dataclass(frozen=True)
class Pilot:
    """K* after ``share`` of a run, and its 90% interval; None where there is none."""

    share: float
    k: float
    interval: tuple[float, float] | None

    def holds(self, k: float) -> bool:
        return self.interval is not None and self.interval[0] <= k <= self.interval[1]


def log_of(run: Run, *, train_wrong: float = 0.0, val_wrong: float = 0.0) -> RunLog:
    """The evaluations of a run, as if a share of the labels that judge it were random ones: their AUC is 1/2."""
    wrong = {"train": train_wrong, "val": val_wrong}
    return RunLog(
        evals=tuple(
            EvalRecord(step=step, split=split, auc=(1 - wrong[split]) * auc + wrong[split] / 2, auc_se=se, pairs=pairs)
            for split, curve in run["curves"].items()
            for step, auc, se, pairs in zip(*(curve[name] for name in ("step", "auc", "auc_se", "pairs")), strict=True)
        )
    )


def pilot(log: RunLog, most: float, share: float = 1.0) -> Pilot | None:
    """K* of the first ``share`` of a run, searched up to ``most``; None where its curves do not determine one."""
    try:
        found = estimate_from_log(log, max_k=most, until=share * max(one.step for one in log.evals))
    except NegwiseError:
        return None
    return Pilot(share, found.k, found.interval)


def star_of(run: Run) -> float | None:
    """K* as somebody reads it whose labels, in training and in validation, are wrong as those of this run."""
    found = pilot(log_of(run, val_wrong=run["noise"]), run["candidates"] - 1)  # its training labels are the wrong ones
    return None if found is None else found.k


def star_if_wrong(run: Run, share: float) -> float | None:
    """What the formula gives beforehand, from a run with right labels: both AUCs as wrong labels would have them."""
    found = pilot(log_of(run, train_wrong=share, val_wrong=share), run["candidates"] - 1)
    return None if found is None else found.k


def best_if_wrong(run: Run, share: float) -> float:
    """The K with the highest mean effectiveness where ``share`` of the labels are random and the rest as they were.

    The same framework, without reading a mixture of right and random labels as one Gaussian: a random positive is above
    K negatives with probability 1 / (K + 1), so P(A) = (1 - share) P(mu, K) + share / (K + 1). The model's P(B) is that
    of its validation curve with right labels.
    """
    ks = np.geomspace(1, max(run["candidates"] - 1, 2), 1000)
    train, val = (_separations(run["curves"][split]) for split in ("train", "val"))
    last = int(np.argmax(val >= HORIZON * val.max()))
    steps = np.asarray(run["curves"]["val"]["step"], float)
    label = float(train[min(int(val.argmax()), len(train) - 1)])
    p_a = (1 - share) * reliability(label, ks) + share / (ks + 1)
    p_b = np.trapezoid(reliability(val[: last + 1, None], ks), steps[: last + 1], axis=0) / max(steps[last], 1)
    return float(ks[int(np.argmax(mean_effectiveness(p_a, p_b, LAM)))])


def _separations(curve: Mapping[str, Any]) -> NDArray[np.float64]:
    return separation([bounded_auc(auc, pairs) for auc, pairs in zip(curve["auc"], curve["pairs"], strict=True)])

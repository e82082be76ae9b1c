"""The AUC of an evaluation, from sums that add up over batches and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from negwise import distributed
from negwise.protocols import VALIDATION_KS
from negwise.records import Scores


class EvalSums:
    """Adds up rows of one evaluation: each row's share of negatives below its positive, with ties 1/2.

    ``AUC = mean over rows``, its standard error is over rows, never over pairs. Rows without negatives are left out and
    counted. ``rows_of_its_own`` says how many rows of a batch are no repetition, the first ones.
    """

    def __init__(self, rows_of_its_own: Callable[[int], int] | None = None) -> None:
        self._rows_of_its_own = rows_of_its_own
        self._sums: Tensor | None = None

    @torch.no_grad()
    def add(self, result: Any) -> None:
        """The result of a loss against all negatives of a batch, with ``wins`` and ``pairs`` (B,)."""
        rows = len(result.wins)
        own = rows if self._rows_of_its_own is None else self._rows_of_its_own(rows)
        wins, pairs = result.wins[:own], result.pairs[:own]
        has = pairs > 0
        share = torch.where(has, wins.double() / pairs.clamp(min=1), 0.0)
        powers = torch.tensor(VALIDATION_KS, dtype=torch.float64, device=share.device)
        curve = (share[:, None] ** powers * has[:, None]).sum(0)
        fixed = torch.stack([has.sum().double(), share.sum(), (share**2).sum(), pairs.sum().double(), (~has).sum()])
        sums = torch.cat([fixed, curve])
        self._sums = sums if self._sums is None else self._sums + sums

    def finish(self) -> tuple[Scores, list[float]] | None:
        """The scores of all ranks and P(K) at `VALIDATION_KS`; None where nothing was added. The sums start anew."""
        if self._sums is None:
            return None
        n, total, squares, pairs, empty, *curve = distributed.total(self._sums).tolist()
        self._sums = None
        if not n:
            return Scores(auc=None, queries=0, pairs=0, no_negative=int(empty)), []
        auc = total / n
        error = math.sqrt(max(squares / n - auc**2, 0.0) / (n - 1)) if n > 1 else None
        scores = Scores(auc=auc, auc_se=error, queries=int(n), pairs=int(pairs), no_negative=int(empty))
        return scores, [value / n for value in curve]


def score_logs(prefix: str, scores: Scores) -> dict[str, float]:
    """``<prefix>_auc``, and with ``_se``, ``_queries`` and ``_pairs`` at its end what else is known."""
    values = {"": scores.auc, "_se": scores.auc_se, "_queries": scores.queries, "_pairs": scores.pairs}
    return {f"{prefix}_auc{name}": value for name, value in values.items() if value is not None}

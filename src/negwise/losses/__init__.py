"""Losses that take tensors and return ``(loss, win_rate)``, from K = 1 to K = 1,000,000.

`info_nce` is eq. 1 from vectors, `info_nce_scores` eq. 1 from scores. The others take scores too; `scores` makes
them from vectors: ``bpr(*scores(query, positive, negatives))``.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.losses.bce import bce
from negwise.losses.bpr import bpr
from negwise.losses.debiased import debiased
from negwise.losses.decoupled import decoupled
from negwise.losses.fused.late import raise_late
from negwise.losses.gbce import gbce
from negwise.losses.info_nce import Choice, info_nce, info_nce_scores, which_impl
from negwise.losses.negatives import Scores, scores
from negwise.losses.result import CorrectedLoss, LossResult

__all__ = [
    "Choice",
    "CorrectedLoss",
    "LossResult",
    "Scores",
    "bce",
    "bpr",
    "debiased",
    "decoupled",
    "gbce",
    "info_nce",
    "info_nce_scores",
    "raise_late",
    "scores",
    "which_impl",
]

"""Losses that take tensors and return a `LossResult`, from K = 1 to K = 1,000,000.

`info_nce` computes eq. 1 from vectors, `info_nce_scores` computes it from scores. The others take scores, which
`scores` computes from vectors: ``bpr(*scores(query, positive, negatives))``.
"""

from __future__ import annotations

from negwise.errors import require

require("torch", extra="torch")

from negwise.losses.arrange import PairScores, scores
from negwise.losses.fused.deferred_errors import raise_deferred_errors
from negwise.losses.info_nce import ChosenImpl, info_nce, info_nce_scores, which_impl
from negwise.losses.result import LossResult, LossWithoutBound
from negwise.losses.score_losses import bce, bpr, debiased, decoupled, gbce

__all__ = [
    "ChosenImpl",
    "LossResult",
    "LossWithoutBound",
    "PairScores",
    "bce",
    "bpr",
    "debiased",
    "decoupled",
    "gbce",
    "info_nce",
    "info_nce_scores",
    "raise_deferred_errors",
    "scores",
    "which_impl",
]

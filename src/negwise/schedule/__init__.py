"""Schedules for K over training, and a batch sampler that passes K on to a collator."""

from negwise.schedule.batch_sampler import KBatchSampler
from negwise.schedule.rules import (
    AnsK,
    ConstantK,
    FunctionK,
    OpenLoop,
    PiecewiseK,
    WarmK,
    parse_rule,
    training_fraction,
)

ALL_SCHEDULES = (ConstantK, AnsK, WarmK, PiecewiseK, FunctionK)

__all__ = [
    "ALL_SCHEDULES",
    "AnsK",
    "ConstantK",
    "FunctionK",
    "KBatchSampler",
    "OpenLoop",
    "PiecewiseK",
    "WarmK",
    "parse_rule",
    "training_fraction",
]

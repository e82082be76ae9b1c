"""Rules for K over training, and a batch sampler that passes K on to a collator."""

from negwise.schedule.dataloader_k import KBatchSampler, KDataset, KIndex
from negwise.schedule.online_k import OnlineK
from negwise.schedule.rules import (
    AnsK,
    ConstantK,
    FunctionK,
    OpenLoop,
    PiecewiseK,
    WarmK,
    k_by_step,
    training_fraction,
)
from negwise.schedule.typed_rules import check_rule, parse_rule

ALL_SCHEDULES = (ConstantK, AnsK, WarmK, PiecewiseK, FunctionK)

__all__ = [
    "ALL_SCHEDULES",
    "AnsK",
    "ConstantK",
    "FunctionK",
    "KBatchSampler",
    "KDataset",
    "KIndex",
    "OnlineK",
    "OpenLoop",
    "PiecewiseK",
    "WarmK",
    "check_rule",
    "k_by_step",
    "parse_rule",
    "training_fraction",
]

"""How K changes over training: the rules, and the batch sampler that carries K to a collator."""

from negwise.schedule.batches import KBatchSampler
from negwise.schedule.rules import AnsK, ConstantK, FunctionK, OpenLoop, PiecewiseK, WarmK, fraction_of
from negwise.schedule.text import rule_from_text

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
    "fraction_of",
    "rule_from_text",
]

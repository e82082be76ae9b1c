"""negwise: how many negatives does InfoNCE need?

`run` trains one model on your data with K, the number of negatives, for your metric. `train` trains with any rule for
K, and `load` opens a trained model. `optimal_k` estimates K from the AUC curves of a short run with K = 1. `OnlineK`,
`WarmK` and other rules give K at each step of your own loop.

Importing this package loads neither torch nor a plotting library. Each name below is fetched from its module when it is
first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from negwise.errors import InputError, MissingExtra, NegwiseError
    from negwise.inference import load
    from negwise.schedule import AnsK, ConstantK, FunctionK, OnlineK, PiecewiseK, WarmK
    from negwise.theory.effectiveness import effectiveness, sample_kinds
    from negwise.theory.estimate import Estimate
    from negwise.theory.gain import share_of_gain
    from negwise.theory.metric_k import k_for_metric
    from negwise.theory.mutual_information import mi_bound
    from negwise.theory.optimal_k import optimal_k
    from negwise.theory.reliability import reliability
    from negwise.theory.separation import auc, separation
    from negwise.verbs import data, run, sweep, train

__version__ = "0.1.0"

_HOMES = {
    "negwise.errors": ("InputError", "MissingExtra", "NegwiseError"),
    "negwise.schedule": ("AnsK", "ConstantK", "FunctionK", "OnlineK", "PiecewiseK", "WarmK"),
    "negwise.theory.effectiveness": ("effectiveness", "sample_kinds"),
    "negwise.theory.estimate": ("Estimate",),
    "negwise.theory.gain": ("share_of_gain",),
    "negwise.theory.metric_k": ("k_for_metric",),
    "negwise.theory.mutual_information": ("mi_bound",),
    "negwise.theory.optimal_k": ("optimal_k",),
    "negwise.theory.reliability": ("reliability",),
    "negwise.theory.separation": ("auc", "separation"),
    "negwise.inference": ("load",),
    "negwise.verbs": ("data", "run", "sweep", "train"),
}
_PARTS = (
    "curves", "datasets", "distributed", "draws", "inference", "losses", "metrics", "models", "samplers", "schedule",
    "training",
)  # fmt: skip
"""Packages that are fetched by their names alike: ``nw.curves.read(...)``."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AnsK",
    "ConstantK",
    "Estimate",
    "FunctionK",
    "InputError",
    "MissingExtra",
    "NegwiseError",
    "OnlineK",
    "PiecewiseK",
    "WarmK",
    "auc",
    "data",
    "effectiveness",
    "k_for_metric",
    "load",
    "mi_bound",
    "optimal_k",
    "reliability",
    "run",
    "sample_kinds",
    "separation",
    "share_of_gain",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"negwise.{name}")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'negwise' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

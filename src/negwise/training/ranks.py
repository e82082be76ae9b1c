"""``test_ranks.safetensors``: the standing of every positive of the test split, so that runs compare query by query."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
from safetensors.numpy import load, save

from negwise.errors import InputError
from negwise.files import write_atomically
from negwise.metrics import Ranks

NAME = "test_ranks.safetensors"


def write_ranks(out: Path, ranks: Ranks) -> None:
    """The ranks of a run's test split, in whole numbers as small as will hold them."""
    values = {field.name: getattr(ranks, field.name) for field in fields(Ranks)}
    small = {name: array.astype(np.min_scalar_type(int(array.max(initial=0)))) for name, array in values.items()}
    write_atomically(out / NAME, save(small))


def read_ranks(out: Path) -> Ranks:
    """What `write_ranks` wrote in the folder of a run."""
    path = out / NAME
    if not path.exists():
        raise InputError(f"{path}: no such file; expected the folder of a run that has ended and has a test split")
    return Ranks(**{name: array.astype(np.int64) for name, array in load(path.read_bytes()).items()})

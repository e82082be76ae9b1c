"""What a backward pass needs and was dataclasses inside dataclasses, handed to autograd as tensors.

Autograd notices where a tensor that it keeps was overwritten before the backward pass, as a reused buffer of ids is,
and says so. What lies on ``ctx`` by itself it never looks at: the gradient would be wrong, silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor


def split_tensors(*dataclasses: Any) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], list[Any]]]:
    """The tensors in ``dataclasses``, and what puts them back: the same dataclasses, in the same order."""
    names = [
        [field.name for field in fields(one) if isinstance(getattr(one, field.name), Tensor)] for one in dataclasses
    ]
    tensors = [getattr(one, name) for one, each in zip(dataclasses, names, strict=True) for name in each]
    without_tensors = [replace(one, **dict.fromkeys(each)) for one, each in zip(dataclasses, names, strict=True)]

    def rebuild(saved: Sequence[Tensor]) -> list[Any]:
        remaining = iter(saved)
        return [
            replace(one, **{name: next(remaining) for name in each})
            for one, each in zip(without_tensors, names, strict=True)
        ]

    return tensors, rebuild

"""Dataclasses whose tensors are saved for the backward pass.

Autograd raises an error if a tensor that it saved is overwritten before the backward pass, such as a reused buffer of
ids. It does not check attributes of ``ctx``: the gradient would be silently wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor


def split_tensors(*dataclasses: Any) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], list[Any]]]:
    """The tensors in ``dataclasses``, and a function that rebuilds the dataclasses from them, in the same order."""
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

"""What a backward pass needs and was given inside dataclasses, handed to autograd as tensors.

Autograd notices where a tensor that it keeps was overwritten before the backward pass, as a reused buffer of ids is,
and says so. What lies on ``ctx`` by itself it never looks at: the gradient would be wrong, silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from torch import Tensor


def apart(*given: Any) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], list[Any]]]:
    """The tensors in the dataclasses ``given``, and what puts them back: the same dataclasses, in the same order."""
    names = [[field.name for field in fields(one) if isinstance(getattr(one, field.name), Tensor)] for one in given]
    tensors = [getattr(one, name) for one, each in zip(given, names, strict=True) for name in each]
    bare = [replace(one, **dict.fromkeys(each)) for one, each in zip(given, names, strict=True)]

    def together(kept: Sequence[Tensor]) -> list[Any]:
        rest = iter(kept)
        return [replace(one, **{name: next(rest) for name in each}) for one, each in zip(bare, names, strict=True)]

    return tensors, together

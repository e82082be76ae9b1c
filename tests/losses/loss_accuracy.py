"""How far an implementation is from float64, beside how far the reference in the same dtype is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from negwise.losses import info_nce

NAMES = ("query", "positive", "negatives")
Results = dict[str, Tensor]


def everything(case: dict[str, Tensor], impl: str, **more: object) -> Results:
    """Loss per row and the gradient, under uneven weights, of all that can have one."""
    leaves = {name: case[name].clone().requires_grad_() for name in NAMES if name in case}
    heat = torch.tensor(0.5, dtype=case["query"].dtype, device=case["query"].device)
    more.setdefault("temperature", heat.requires_grad_())
    got = info_nce(**{**case, **leaves}, reduction="none", impl=impl, **more)  # type: ignore[arg-type]
    weights = torch.linspace(-1, 2, len(got.loss), dtype=got.loss.dtype, device=got.loss.device)
    wanted = [*leaves.values(), more["temperature"]]
    grads = torch.autograd.grad((weights * got.loss).sum(), wanted)  # type: ignore[arg-type]
    return {"loss": got.loss.detach(), **dict(zip([*leaves, "temperature"], grads, strict=True))}


def no_less_accurate(
    cases: list[dict[str, Tensor]],
    impl: str,
    run: Callable[[dict[str, Tensor], str], Results] = everything,
    slack: float = 0.5,
) -> None:
    """Root mean square error to float64 over all cases, in units of the last place of the largest number."""
    squares: dict[str, list[float]] = {}
    for case in cases:
        exactly = {name: t.double() if t.is_floating_point() else t for name, t in case.items()}
        truth = everything(exactly, "reference")
        reference, fast = everything(case, "reference"), run(case, impl)
        for name, want in truth.items():
            assert fast[name].dtype == reference[name].dtype
            assert fast[name].shape == reference[name].shape
            size = want.abs().max()
            if name == "temperature":  # one number, a sum of these: what cancels in it is nobody's fault
                size = (exactly["query"] * truth["query"]).abs().sum() / 0.5
            unit = torch.finfo(fast[name].dtype).eps * (float(size) + 1e-30)
            sums = squares.setdefault(name, [0.0, 0.0])
            for i, got in enumerate((reference, fast)):
                sums[i] += float(((got[name].double() - want) / unit).square().mean()) / len(cases)
    for name, (theirs, ours) in squares.items():
        # A quarter more and some slack: where both round rightly, luck decides.
        assert ours**0.5 <= 1.25 * theirs**0.5 + slack, (name, theirs**0.5, ours**0.5)

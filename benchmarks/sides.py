"""Ways to compute the same loss, measured side by side.

``off`` is how far loss and gradients are from those of the streamed pass in float32, relative to their size. Figures of
a side that is not there are None.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import gpu, peers
from benchmarks.cases import Found
from benchmarks.gpu import counted
from negwise.errors import InputError
from negwise.losses import info_nce, which_impl

Loss = Callable[[], Tensor]


@dataclass(frozen=True)
class Side:
    """One way to compute a loss; ``both`` where its gradients do not come from autograd. ``graph``: replay it too."""

    loss: Loss
    both: Callable[[], Sequence[Tensor]] | None = None
    graph: bool = False
    same: bool = True  # its gradients are those of the others
    forward: bool = True  # time the forward pass too

    def gradients(self, leaves: list[Tensor]) -> Sequence[Tensor]:
        return torch.autograd.grad(self.loss(), leaves) if self.both is None else self.both()


@dataclass(frozen=True)
class Bench:
    """Where cases are run, and in which dtype."""

    device: torch.device
    dtype: torch.dtype
    top: dict[str, float]

    @property
    def generator(self) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(0)

    def compare(self, sides: dict[str, Side], leaves: list[Tensor], truth: Side | None) -> Found:
        """Each side's times, memory and distance from the ``truth``; one that fails says so and the others go on."""
        wanted = None if truth is None else [truth.loss().detach(), *truth.gradients(leaves)]
        found: Found = {}
        for name, side in sides.items():
            try:
                found[name] = self.measured(side, leaves, wanted)
            except Exception as error:
                found[name] = {"failed": f"{type(error).__name__}: {error}"[:500]}
            print(" ", name, json.dumps(found[name]), flush=True)  # the case itself may be cut off
            gpu.settle(self.device)
        return found

    def measured(self, side: Side, leaves: list[Tensor], wanted: list[Tensor] | None) -> Found:
        found: Found = {}
        if wanted is not None:
            got = [side.loss().detach(), *(side.gradients(leaves) if side.same else ())]
            found["off"] = [off(a, b) for a, b in zip(got, wanted, strict=False)]
            del got
        if side.forward:
            found["forward"] = gpu.measure(side.loss, self.device, side.graph)
        found["both"] = gpu.measure(lambda: side.gradients(leaves), self.device, side.graph)
        return found


def off(ours: Tensor, theirs: Tensor) -> float:
    """How far two tensors are apart, relative to the size of the second."""
    return float((ours.float() - theirs.float()).norm() / theirs.float().norm())


def ratio(found: Found, slow: str, fast: str, what: str = "both") -> float | None:
    """How many times as fast one side is as another; None where one is not there."""
    try:
        return counted(found[slow][what]) / counted(found[fast][what])
    except KeyError:
        return None


def share(found: Found, part: str, whole: str) -> float | None:
    """The peak memory of one side as a share of another's."""
    try:
        small, large = found[part]["both"]["peak_mib"], found[whole]["both"]["peak_mib"]
    except KeyError:
        return None
    return None if small is None else 100 * small / large


def of(found: Found, side: str, what: str = "both") -> float | None:
    """The milliseconds of a side, where it is there."""
    return counted(found[side][what]) if what in found.get(side, {}) else None


def over(value: float | None, limit: float) -> float | None:
    return None if value is None else value / limit


def extra(found: Found, leaves: list[Tensor]) -> float | None:
    """MiB that the fused side holds beside inputs and gradients."""
    fused = found.get("fused", {})
    return gpu.extra_mib(fused["forward"], fused["both"], leaves) if "both" in fused else None


def fused_side(
    query: Tensor, positive: Tensor, negatives: Tensor | None, impl: str = "fused", **more: Any
) -> Side | str:
    """Our kernels, or why they are left out."""
    try:
        which_impl(query, positive, negatives, impl=impl, ids=more.get("ids"))
    except InputError as error:
        return str(error)
    return Side(lambda: info_nce(query, positive, negatives, impl=impl, **more).loss, graph=True)


def streamed(query: Tensor, positive: Tensor, negatives: Tensor | None, **more: Any) -> Side:
    return Side(lambda: info_nce(query, positive, negatives, impl="streamed", **more).loss)


def with_fused(side: Side | str, others: dict[str, Side]) -> tuple[dict[str, Side], Found]:
    """All sides, and a note where the kernels cannot be one of them."""
    if isinstance(side, str):
        return others, {"fused, left out": side}
    return {"fused": side, **others}, {}


def beside(layout: str, query: Tensor, positive: Tensor, negatives: Callable[[], Tensor] | None) -> Any:
    """The peers that take a layout, as sides; and why others are not there."""
    there, reasons = peers.of_layout(layout, query.device)

    def side(peer: peers.Peer) -> Side:
        def loss() -> Tensor:
            return peer.loss(query, positive, None if negatives is None else negatives())

        both = None if peer.both is None else lambda: peer.both(query, positive, None)  # type: ignore[misc]
        return Side(loss, both, same=not peer.normalises and layout in peer.same)

    return {peer.name: side(peer) for peer in there}, ({"peers, left out": reasons} if reasons else {})

"""Other people's InfoNCE, from their own packages, called as their users call it.

=====================  =======================  ======================================================================
package                takes                    computes differently
=====================  =======================  ======================================================================
info-nce-pytorch       rows, shared, the batch  makes its vectors unit length; scores in the inputs' dtype
inf-cl                 the batch                everything as float32, multiplied in tf32; CUDA
cut-cross-entropy      shared, the batch        rows see one another's positives beside shared negatives; gradients are
                                                added up in the inputs' dtype, bfloat16 or float16, and unless told
                                                otherwise a tile whose shares are all below 2^-12 is left out; CUDA
sentence-transformers  the batch                scores in the inputs' dtype; the cached one in chunks of rows
=====================  =======================  ======================================================================

None of them gives a win rate, masks twins, or takes ids into a table. ``python -m benchmarks.peers`` checks each
against negwise on a CPU where it runs there; ``--install`` fetches them first, without what they depend on, into
NEGWISE_PEERS (``scratch/peers`` unless that is set), a folder that can be carried to a machine without a network.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from negwise.losses import info_nce

HOME = Path(os.environ.get("NEGWISE_PEERS", Path(__file__).parents[1] / "scratch" / "peers"))
PACKAGES = {
    "info-nce-pytorch": ("0.1.4", "info_nce"),
    "inf-cl": ("1.2.1", "inf_cl"),
    "cut-cross-entropy": ("25.1.1", "cut_cross_entropy"),
    "sentence-transformers": ("6.0.1", "sentence_transformers.sentence_transformer.losses"),
}
"""Version and module of each package."""
SQUARED = 10.0
"""Every vector's squared length in the benchmarks: unit vectors at a temperature of 0.1, for a peer that insists."""
CHUNK = 2048
"""Rows at a time of the cached loss, whose default of 32 is meant for an encoder's memory."""

Loss = Callable[[Tensor, Tensor, "Tensor | None"], Tensor]
Both = Callable[[Tensor, Tensor, "Tensor | None"], Sequence[Tensor]]


@dataclass(frozen=True)
class Peer:
    """``loss(query, positive, negatives)`` on vectors of squared length `SQUARED`.

    ``layouts`` of "rows", "shared" and "batch". ``both`` where the gradients (of query, then positive) do not come from
    autograd. ``normalises``: it makes its vectors unit length, and its gradients are those of that too. ``same``: the
    layouts in which it is the very function of `info_nce` otherwise. ``cpu``: runs on one.
    """

    name: str
    package: str
    layouts: tuple[str, ...]
    loss: Loss
    both: Both | None = None
    normalises: bool = False
    same: tuple[str, ...] = ("rows", "shared", "batch")
    cpu: bool = True


def module(package: str) -> ModuleType:
    """A peer's module; ImportError where it, or what it needs, is not there."""
    if str(HOME) not in sys.path:
        sys.path.append(str(HOME))
    return importlib.import_module(PACKAGES[package][1])


@cache
def missing(package: str) -> str | None:
    """Why a peer cannot be used, or None."""
    try:
        module(package)
    except Exception as error:  # a peer may fail to import in ways of its own
        return f"{type(error).__name__}: {error}"
    return None


def standing() -> dict[str, str]:
    """Each package's version, or why it is not there."""
    return {package: missing(package) or _version(package) for package in PACKAGES}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown version"


def install(packages: Sequence[str] = tuple(PACKAGES)) -> None:
    pinned = [f"{package}=={PACKAGES[package][0]}" for package in packages]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(HOME), *pinned]
    subprocess.run(command, check=True)
    importlib.invalidate_caches()


def _info_nce(query: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor:
    mode = "paired" if negatives is not None and negatives.dim() == 3 else "unpaired"
    theirs = module("info-nce-pytorch")
    return theirs.info_nce(query, positive, negatives, temperature=1 / SQUARED, negative_mode=mode)


def _inf_cl(query: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor:
    del negatives
    depth = query.shape[1]
    width = 256 if depth % 256 == 0 else depth
    return module("inf-cl").cal_flash_loss(query, positive, head_dim=width).mean()


def _cut(filtered: bool) -> Loss:
    def loss(query: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor:
        keys = positive if negatives is None else torch.cat([positive, negatives])
        own = torch.arange(len(query), device=query.device)
        theirs = module("cut-cross-entropy").linear_cross_entropy
        if query.device.type == "cpu":  # the package's own plain side: the same function, not the same kernel
            return theirs(query, keys, own, impl="torch_compile")
        return theirs(query, keys, own, filter_eps="high" if filtered else None)

    return loss


def _ranking(query: Tensor, positive: Tensor, negatives: Tensor | None) -> Tensor:
    del negatives
    theirs = module("sentence-transformers").MultipleNegativesRankingLoss
    # The model would only make the vectors; they are here.
    return theirs(nn.Sequential(), scale=1.0, similarity_fct=_dot).compute_loss_from_embeddings([query, positive], None)


def _cached(query: Tensor, positive: Tensor, negatives: Tensor | None, backward: bool = False) -> Tensor:
    del negatives
    theirs = module("sentence-transformers").CachedMultipleNegativesRankingLoss
    made = theirs(nn.Sequential(nn.Identity()), scale=1.0, similarity_fct=_dot, mini_batch_size=CHUNK)
    return made.calculate_loss([[query], [positive]], with_backward=backward)


def _cached_both(query: Tensor, positive: Tensor, negatives: Tensor | None) -> Sequence[Tensor]:
    """It calls ``backward`` itself, chunk by chunk, which is what saves its memory."""
    own, other = (tensor.detach().requires_grad_() for tensor in (query, positive))
    _cached(own, other, negatives, backward=True)
    assert own.grad is not None and other.grad is not None
    return own.grad, other.grad


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.t()


PEERS = (
    Peer("info-nce-pytorch", "info-nce-pytorch", ("rows", "shared", "batch"), _info_nce, normalises=True),
    Peer("inf-cl", "inf-cl", ("batch",), _inf_cl, cpu=False),
    Peer("cut-cross-entropy, every gradient", "cut-cross-entropy", ("shared", "batch"), _cut(False), same=("batch",)),
    Peer("cut-cross-entropy, as it comes", "cut-cross-entropy", ("shared", "batch"), _cut(True), same=("batch",)),
    Peer("sentence-transformers, plain", "sentence-transformers", ("batch",), _ranking),
    Peer("sentence-transformers, cached", "sentence-transformers", ("batch",), _cached, _cached_both),
)


def of_layout(layout: str, device: torch.device) -> tuple[list[Peer], dict[str, str]]:
    """The peers that take a layout on a device; and why others that might are not there."""
    there, reasons = [], {}
    for peer in PEERS:
        if layout not in peer.layouts:
            continue
        reason = missing(peer.package)
        if reason is None and device.type == "cpu" and not peer.cpu:
            reason = "runs on CUDA only"
        if reason is None:
            there.append(peer)
        else:
            reasons[peer.name] = reason
    return there, reasons


def gradients(peer: Peer, query: Tensor, positive: Tensor, negatives: Tensor | None) -> Sequence[Tensor]:
    """Of query and positive."""
    if peer.both is not None:
        return peer.both(query, positive, negatives)
    return torch.autograd.grad(peer.loss(query, positive, negatives), [query, positive])


def ours(peer: Peer, query: Tensor, positive: Tensor, negatives: Tensor | None, impl: str) -> Tensor:
    """negwise's loss, as the peer computes it: of vectors that it has made unit length, or of them as they are."""
    given = [query, positive] if negatives is None else [query, positive, negatives]
    if peer.normalises:
        given = [SQUARED**0.5 * F.normalize(part, dim=-1) for part in given]
    return info_nce(*given, impl=impl).loss


def vectors(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random directions, of squared length `SQUARED`."""
    raw = torch.randn(*shape, generator=generator, device=generator.device)
    return (raw * (SQUARED**0.5 / raw.norm(dim=-1, keepdim=True))).to(dtype)


def check(rows: int = 12, width: int = 20, depth: int = 16) -> dict[str, dict[str, float | str]]:
    """How far each peer is from negwise in float32 on a CPU: loss and gradients, the largest relative difference."""
    make = torch.Generator().manual_seed(0)
    found: dict[str, dict[str, float | str]] = {}
    for layout in ("rows", "shared", "batch"):
        query, positive = (vectors(make, rows, depth).requires_grad_() for _ in range(2))
        shape = {"rows": (rows, width, depth), "shared": (width, depth)}.get(layout)
        negatives = None if shape is None else vectors(make, *shape)
        there, reasons = of_layout(layout, query.device)
        for peer in there:
            if layout not in peer.same:
                found.setdefault(peer.name, {})[layout] = "another function"
                continue
            value = ours(peer, query, positive, negatives, "reference")
            wanted = [value.detach(), *torch.autograd.grad(value, [query, positive])]
            got = [peer.loss(query, positive, negatives).detach(), *gradients(peer, query, positive, negatives)]
            off = max(float((a - b).norm() / b.norm()) for a, b in zip(got, wanted, strict=True))
            found.setdefault(peer.name, {})[layout] = off
        for name, reason in reasons.items():
            found.setdefault(name, {})[layout] = reason
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--install", action="store_true", help=f"fetch the packages into {HOME}")
    if parser.parse_args().install:
        install()
    for package, state in standing().items():
        print(f"{package}: {state}")
    worst = 0.0
    for name, offs in check().items():
        for layout, off in offs.items():
            print(f"{name}, {layout}: {off}")
            worst = max(worst, off) if isinstance(off, float) else worst
    return 0 if worst < 1e-5 else 1


if __name__ == "__main__":
    raise SystemExit(main())
